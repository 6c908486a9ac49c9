"""Expert workers as child processes on this host, reached over socket pairs: a `Transport` for the dispatcher.

For verification and tests: no server, no relay, but real processes that hold only their slices and can be killed.
"""

from __future__ import annotations

import itertools
import json
import logging
import selectors
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from inference.errors import InferenceError
from inference.gguf_index import ModelIndex
from inference.kernel import kernel_class_name
from inference.replica_table import Replica, ReplicaTable
from inference.slices import plan_slice, write_slice
from inference.verify.expert_process import FrameReader, messages_of, send_messages
from relay.errors import RelayError
from relay.frames import Frame, FrameType
from relay.messages import Lease, dispatch_frame, read_refusal, read_result
from relay.work import Dispatch, Failed, OnDone, Outcome, Result

logger = logging.getLogger(__name__)

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 60.0
STOP_SECONDS = 10.0
FENCE = 7


class WorkerNotStarted(InferenceError):
    """A worker process did not come up."""

    code = "worker_not_started"


class Range(NamedTuple):
    """Experts [first, last) of one layer."""

    layer: int
    first: int
    last: int


@dataclass
class Worker:
    """One child process and what it holds: claim number -> range. `gone`: its socket is closed."""

    number: int
    process: subprocess.Popen[bytes]
    channel: socket.socket
    claims: dict[int, Range]
    sending: threading.Lock = field(default_factory=threading.Lock)
    gone: bool = False


class Pending(NamedTuple):
    worker: int
    request: Dispatch
    on_done: OnDone


class LocalSwarm:
    """Starts one process per entry of `holdings` (its ranges) and carries requests to it. A context manager.

    folder: for the slices, which are cut from the model on entering. Raises WorkerNotStarted, GGUFError.
    """

    def __init__(
        self,
        index: ModelIndex,
        holdings: Sequence[Sequence[Range]],
        folder: Path,
        *,
        kernel: str = "ggml",
        threads: int = 1,
    ) -> None:
        self._index = index
        self._holdings = holdings
        self._folder = folder
        self._options = ["--kernel", kernel, "--threads", str(threads)]
        self._module = f"inference.verify.{'browser' if kernel == 'browser' else 'expert'}_process"
        self._workers: list[Worker] = []
        self._pending: dict[int, Pending] = {}
        self._requests = itertools.count(1)
        self._claims = itertools.count(1)
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._stop_reader, self._reader_wakes = socket.socketpair()
        self._thread = threading.Thread(target=self._read_answers, name="local-swarm", daemon=True)

    # --- Transport ----------------------------------------------------------------------------------------------------
    def submit_many(self, dispatches: Sequence[tuple[Dispatch, OnDone]]) -> list[int]:
        """Sends requests; each callback is called once, from the reading thread (or here when the worker is gone)."""
        return [self._submit(dispatch, on_done) for dispatch, on_done in dispatches]

    def cancel(self, requests: Sequence[int]) -> None:
        with self._lock:
            for request in requests:
                self._pending.pop(request, None)

    # --- what a test does to it ---------------------------------------------------------------------------------------
    @property
    def table(self) -> ReplicaTable:
        """Every range of every worker, as the dispatcher wants it."""
        kernel_class = kernel_class_name()
        replicas = [
            Replica(
                worker.number,
                f"worker-{worker.number}",
                claim,
                FENCE,
                *held,
                kernel_class,
                gives_sums=True,
                takes_q8_0=True,
            )
            for worker in self._workers
            for claim, held in worker.claims.items()
        ]
        return ReplicaTable(replicas, experts_per_layer=self._index.experts_per_layer)

    def kill(self, number: int) -> None:
        """SIGKILL, as a machine that loses power."""
        self._workers[number].process.kill()

    # --- life ---------------------------------------------------------------------------------------------------------
    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            for number, ranges in enumerate(self._holdings):
                self._workers.append(self._start(number, ranges))
            for worker in self._workers:
                self._wait_until_ready(worker)
        except BaseException:
            self._close()
            raise
        self._selector.register(self._reader_wakes, selectors.EVENT_READ, None)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_reader.close()  # wakes the reading thread
        self._thread.join()
        self._close()

    def _close(self) -> None:
        for worker in self._workers:
            worker.channel.close()  # a worker ends when its socket is closed
        for worker in self._workers:
            try:
                worker.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
        self._selector.close()
        self._stop_reader.close()
        self._reader_wakes.close()

    def _start(self, number: int, ranges: Sequence[Range]) -> Worker:
        claims = {next(self._claims): held for held in ranges}
        entries = [
            {"path": str(self._slice(held)), "claim_id": claim, "fence": FENCE, "build": self._index.fingerprint}
            | held._asdict()
            for claim, held in claims.items()
        ]
        listing = self._folder / f"worker-{number}.json"
        listing.write_text(json.dumps(entries))
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", self._module, "--socket", str(theirs.fileno())]
            process = subprocess.Popen(
                [*command, "--holdings", str(listing), *self._options], cwd=ROOT, pass_fds=[theirs.fileno()]
            )
        return Worker(number, process, ours, claims)

    def _slice(self, held: Range) -> Path:
        """The slice's file, cut when it is not there yet: replicas of a range share it."""
        path = self._folder / f"layer-{held.layer}-experts-{held.first}-{held.last}.gguf"
        if not path.exists():
            write_slice(plan_slice(self._index, *held), path)
        return path

    def _wait_until_ready(self, worker: Worker) -> None:
        """The first frame of a worker says that its slices are open."""
        worker.channel.settimeout(START_SECONDS)
        reader = FrameReader()
        try:
            data = worker.channel.recv(1 << 16)
        except TimeoutError:
            data = b""
        if not data:
            raise WorkerNotStarted(f"worker {worker.number} did not open its slices (status {worker.process.poll()})")
        assert [frame.type for frame in reader.feed(data)] == [FrameType.PING]
        worker.channel.settimeout(None)
        self._selector.register(worker.channel, selectors.EVENT_READ, (worker, reader))

    # --- requests -----------------------------------------------------------------------------------------------------
    def _submit(self, dispatch: Dispatch, on_done: OnDone) -> int:
        request = next(self._requests)
        assert isinstance(dispatch.session, int)
        worker = self._workers[dispatch.session]
        frame = dispatch_frame(
            layer=dispatch.layer,
            session=worker.number,
            request=request,
            lease=Lease(dispatch.fence, dispatch.claim_id),
            pairs=dispatch.pairs,
            rows=dispatch.rows,
            row_dtype=dispatch.row_dtype,
            result_dtype=dispatch.result_dtype,
            weights=dispatch.weights,
        )
        with self._lock:
            gone = worker.gone
            if not gone:
                self._pending[request] = Pending(worker.number, dispatch, on_done)
        if gone:
            on_done(Failed("session_left", f"worker {worker.number} is gone"))
            return request
        try:
            with worker.sending:
                send_messages(worker.channel, messages_of(frame))
        except OSError as error:  # it was killed a moment ago; the reading thread will notice too
            self._finish(request, Failed("session_left", str(error)))
        return request

    def _finish(self, request: int, outcome: Outcome) -> None:
        with self._lock:
            pending = self._pending.pop(request, None)
        if pending is not None:
            pending.on_done(outcome)

    def _read_answers(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    return
                worker, reader = key.data
                try:
                    data = worker.channel.recv(1 << 20)
                except OSError:
                    data = b""
                if not data:
                    self._selector.unregister(worker.channel)
                    self._lose(worker)
                    continue
                for frame in reader.feed(data):
                    self._take(frame)

    def _take(self, frame: Frame) -> None:
        with self._lock:
            pending = self._pending.get(frame.request)
        if pending is None:
            return
        try:
            if frame.type is FrameType.RESULT:
                asked = pending.request
                values = read_result(
                    frame,
                    len(asked.pairs),
                    self._index.n_embd,
                    result_dtype=asked.result_dtype,
                    row_count=len(asked.rows),
                )
                self._finish(frame.request, Result(values))
            else:
                refusal = read_refusal(frame)
                self._finish(frame.request, Failed(refusal.code, refusal.message))
        except RelayError as error:
            self._finish(frame.request, Failed("bad_body", str(error)))

    def _lose(self, worker: Worker) -> None:
        with self._lock:
            worker.gone = True
            lost = [request for request, pending in self._pending.items() if pending.worker == worker.number]
        for request in lost:
            self._finish(request, Failed("session_left", f"worker {worker.number} is gone"))
