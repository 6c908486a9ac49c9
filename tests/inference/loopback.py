"""A transport without sockets: real kernels on real slices answer in a thread, with the faults that a test asks for."""

import itertools
import queue
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from inference.gguf_index import open_index
from inference.kernel import CpuRuntime, GgmlKernel
from inference.replica_table import Replica
from inference.rows import partial_sums
from inference.slices import plan_slice, write_slice
from relay.frames import ResultDtype
from relay.work import Dispatch, Failed, OnDone, Outcome, Result

Fault = Callable[[Dispatch, Outcome], Outcome | None]


def honest(dispatch: Dispatch, outcome: Outcome) -> Outcome:
    return outcome


class LoopbackWorker:
    """Holds slices and answers one request after another. `fault` may replace an answer, or return None: silence."""

    def __init__(self, model: Path, folder: Path, session: int, ranges: Sequence[tuple[int, int, int]]) -> None:
        self.session = session
        self.fault: Fault = honest
        self.requests: list[Dispatch] = []
        self._runtime = CpuRuntime(1)
        index = open_index(model)
        self.replicas: list[Replica] = []
        self._kernels: dict[int, GgmlKernel] = {}
        for number, (layer, first, last) in enumerate(ranges):
            path = folder / f"{session}-{layer}-{first}.gguf"
            write_slice(plan_slice(index, layer, first, last), path)
            claim = session * 1000 + number
            kernel = self._kernels[claim] = GgmlKernel.open(path, self._runtime)
            self.replicas.append(
                Replica(
                    session,
                    f"node{session}",
                    claim,
                    1,
                    layer,
                    first,
                    last,
                    kernel.kernel_class,
                    gives_sums=True,
                    takes_q8_0=True,
                )
            )

    def answer(self, dispatch: Dispatch) -> Outcome | None:
        self.requests.append(dispatch)
        rows = dispatch.rows[dispatch.pairs[:, 0]]
        values = self._kernels[dispatch.claim_id].compute(rows, dispatch.pairs[:, 1].astype(np.int32))
        if dispatch.weights is not None:
            kind = np.float16 if dispatch.result_dtype == ResultDtype.PARTIAL_F16 else np.float32
            sums = partial_sums(values, dispatch.pairs[:, 0], dispatch.weights, len(dispatch.rows), kind)
            return self.fault(dispatch, Result(sums))
        return self.fault(dispatch, Result(values))

    def close(self) -> None:
        for kernel in self._kernels.values():
            kernel.close()
        self._runtime.close()


class Loopback:
    """`inference.dispatch.Transport` over some workers."""

    def __init__(self, workers: Sequence[LoopbackWorker]) -> None:
        self.workers = {worker.session: worker for worker in workers}
        self.cancelled: list[int] = []
        self._ids = itertools.count(1)
        self._queue: queue.SimpleQueue[tuple[Dispatch, OnDone] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def submit_many(self, dispatches: Sequence[tuple[Dispatch, OnDone]]) -> list[int]:
        for entry in dispatches:
            self._queue.put(entry)
        return [next(self._ids) for _ in dispatches]

    def cancel(self, requests: Sequence[int]) -> None:
        self.cancelled.extend(requests)

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()
        for worker in self.workers.values():
            worker.close()

    def _run(self) -> None:
        while (entry := self._queue.get()) is not None:
            dispatch, on_done = entry
            worker = self.workers.get(dispatch.session)  # type: ignore[call-overload]
            outcome = worker.answer(dispatch) if worker else Failed("session_left", "the worker is gone")
            if outcome is not None:
                on_done(outcome)
