"""The backbone of the rig: `python -m inference.benchmarks.rig.backbone OPTIONS`, OPTIONS being JSON (`Options`).

It loads the model once and obeys lines of JSON on stdin, one answer line each:

    {"prepare": N}              N sequences over all lanes, prompts read here -> {"ready": N}
    {"use": GROUP, "workers": K}  waits for K workers of a group, and uses these alone -> {"replicas": ...}
    {"round": STEPS}            STEPS tokens of every sequence, lanes in threads of their own, as the engine runs them
                                -> {"tokens", "seconds", "cpu_seconds", "places", "failures", "sent_bytes", ...}
    {"window": S, "warm": W}    lanes step without a pause; what S seconds saw after W of them -> as a round
    {"demand": 1}               rows asked so far, (layers, experts) -> {"demand": [[...]]}
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from inference.backend import ExpertCall, SwarmBackend
from inference.benchmarks.relay.names import BACKBONE_TOKEN, BUILD
from inference.benchmarks.side import GREEDY, prompt
from inference.dispatch import Dispatcher, DispatchPolicy
from inference.generation import Generation, GenerationRequest, TokenEvent
from inference.gguf_index import ModelIndex, open_index
from inference.hot_set import HotBudget
from inference.hot_set_keeper import HotSetKeeper
from inference.hot_set_meter import LayerCounts
from inference.kernel import kernel_class_name
from inference.lane import Lane
from inference.llama import Context, ContextSettings, Model
from inference.replica_table import Replica, ReplicaTable
from inference.trace import TraceHeader, TraceWriter
from inference.work_report import WorkReport
from relay.backbone_link import BackboneLink
from relay.frames import ResultDtype

JOIN_SECONDS = 60.0
# As good as no deadline: in `remote-only` a row that is not computed by a worker is computed by nobody.
NO_DEADLINE_SECONDS = 100.0


@dataclass(frozen=True)
class Options:
    """sequences: of all lanes together; is_remote_only: no deadlines, no caps; else the limits of a real backbone.

    result_dtype: a name of ResultDtype; gpu_layers: see `Model`; hot_bytes: budget of the hot set, 0: none; trace: a
    folder for one trace per lane, empty: none.
    """

    model: str
    relay: str
    lanes: int
    sequences: int
    threads: int = 2
    sequence_tokens: int = 256
    is_remote_only: bool = True
    result_dtype: str = "F32"
    gpu_layers: int = 0
    hot_bytes: int = 0
    trace: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @property
    def policy(self) -> DispatchPolicy:
        result_dtype = ResultDtype[self.result_dtype]
        if not self.is_remote_only:
            return DispatchPolicy(result_dtype=result_dtype)
        return DispatchPolicy(
            result_dtype=result_dtype,
            deadline_seconds=NO_DEADLINE_SECONDS,
            shortest_deadline_seconds=NO_DEADLINE_SECONDS,
            tokens_limit=1 << 16,
            owner_bytes_limit=1 << 30,
        )

    @property
    def context(self) -> ContextSettings:
        per_lane = -(-self.sequences // self.lanes)
        return ContextSettings(
            sequence_tokens=self.sequence_tokens,
            sequences=per_lane,
            batch_tokens=max(64, per_lane),
            threads=max(1, self.threads // self.lanes),
            outputs=per_lane,
        )


class LayerClock:
    """The dispatcher as llama.cpp calls it, and when each lane's last layer ended: what a step takes after its last one
    is the head's time (last norm, vocabulary, sampling)."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._ended: dict[int, float] = {}

    def __call__(self, call: ExpertCall) -> None:
        self._dispatcher(call)
        self._ended[call.lane_number] = time.perf_counter()

    def since_last_layer(self, lane: int) -> float:
        return time.perf_counter() - self._ended[lane]


class Backbone:
    """Lanes over one model; nothing but the steps that it is told to take."""

    def __init__(self, options: Options, handles: ExitStack) -> None:
        self.options = options
        self.index: ModelIndex = open_index(Path(options.model))
        self.link = BackboneLink(
            [options.relay], token=BACKBONE_TOKEN, build=BUILD, kernel_class=kernel_class_name(), name="rig"
        )
        self.dispatcher = Dispatcher(
            self.link,
            layers=max(self.index.layers) + 1,
            experts_per_layer=self.index.experts_per_layer,
            policy=options.policy,
        )
        self._clock = LayerClock(self.dispatcher)
        backend = SwarmBackend.install(self._clock)
        backend.takes_weights = options.policy.is_compact
        self._model = handles.enter_context(Model(Path(options.model), gpu_layers=options.gpu_layers))
        self._lanes: list[Lane] = []
        for number in range(options.lanes):
            with backend.lane(number, options.context.threads):
                context = handles.enter_context(Context(self._model, options.context))
            trace = handles.enter_context(self._trace(number)) if options.trace else None
            self._lanes.append(Lane(context, trace=trace))
        self._rows_per_token = len(self.index.offered_layers) * self.index.experts_used
        self._total: WorkReport | None = None
        self._unread: set[str] = set()
        self._tokens = 0
        self._lock = threading.Lock()
        self.link.start()
        handles.callback(self.link.stop)
        hot_set = HotSetKeeper(self.index, self.dispatcher, HotBudget(options.hot_bytes))
        hot_set.start()
        handles.callback(hot_set.stop)

    # --- orders -------------------------------------------------------------------------------------------------------
    def prepare(self, sequences: int) -> dict[str, Any]:
        self._table_of([])
        for lane in self._lanes:
            lane.abandon("cancelled")
        vocabulary, longest = self._model.vocabulary, self.options.sequence_tokens
        self._unread = {str(number) for number in range(sequences)}
        for number in range(sequences):
            request = GenerationRequest(str(number), prompt(number, vocabulary.size), GREEDY)
            self._lanes[number % len(self._lanes)].add(Generation(request, self._listener(number), vocabulary, longest))
        while self._unread:
            for lane in self._lanes:
                lane.step()
        self._keep_report()
        return {"ready": sequences}

    def use(self, group: str, workers: int) -> dict[str, Any]:
        """Raises TimeoutError."""
        replicas = replicas_of(self.link, group, workers)
        self._table_of(replicas)
        return {"replicas": len(replicas), "workers": len({replica.session for replica in replicas})}

    def round(self, steps: int) -> dict[str, Any]:
        self._tokens = 0
        busy = [(number, lane) for number, lane in enumerate(self._lanes) if lane.size]
        ready = threading.Barrier(len(busy) + 1)
        head_seconds = [0.0] * len(self._lanes)

        def run(number: int, lane: Lane) -> None:
            ready.wait()
            for _ in range(steps):
                lane.step()
                head_seconds[number] += self._clock.since_last_layer(number)

        threads = [threading.Thread(target=run, args=one) for one in busy]
        for thread in threads:
            thread.start()
        ready.wait()
        before = self.dispatcher.layer_counts()
        cpu, began = time.process_time(), time.perf_counter()
        for thread in threads:
            thread.join()
        seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu
        report = self._keep_report()
        return {
            **_answer(report, self._tokens, seconds, cpu_seconds),
            "layers": _spent(before, self.dispatcher.layer_counts()),
            "head_seconds": sum(head_seconds),
        }

    def window(self, seconds: float, warm: float) -> dict[str, Any]:
        """Tokens are counted by their rows, layer by layer: a step of many slow sequences may outlast a window."""
        stop = threading.Event()

        def run(lane: Lane) -> None:
            while not stop.is_set():
                lane.step()

        threads = [threading.Thread(target=run, args=(lane,)) for lane in self._lanes if lane.size]
        for thread in threads:
            thread.start()
        time.sleep(warm)
        self._keep_report()
        cpu, began = time.process_time(), time.perf_counter()
        time.sleep(seconds)
        report = self._keep_report()
        took, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu
        stop.set()
        for thread in threads:
            thread.join()
        self._keep_report()
        tokens = sum(report.places.values()) / self._rows_per_token
        return _answer(report, tokens, took, cpu_seconds)

    def demand(self) -> dict[str, Any]:
        self._keep_report()
        assert self._total is not None
        return {"demand": self._total.demand.tolist(), "layers": list(self.index.offered_layers)}

    def _trace(self, lane: int) -> TraceWriter:
        path = Path(self.options.model).resolve()
        header = TraceHeader(path, self.index.fingerprint, self._model.vocabulary.size, self.options.context, lane)
        return TraceWriter(Path(self.options.trace) / f"lane-{lane}.jsonl", header)

    # --- inside -------------------------------------------------------------------------------------------------------
    def _listener(self, number: int) -> Any:
        name = str(number)

        def on_event(event: TokenEvent) -> None:
            with self._lock:
                self._unread.discard(name)
                self._tokens += event.token >= 0

        return on_event

    def _table_of(self, replicas: list[Replica]) -> None:
        self.dispatcher.set_replicas(ReplicaTable(replicas, experts_per_layer=self.index.experts_per_layer))

    def _keep_report(self) -> WorkReport:
        report = self.dispatcher.take_report()
        if self._total is None:
            self._total = WorkReport(np.zeros_like(report.demand))
        self._total.add(report)
        return report


def replicas_of(link: BackboneLink, group: str, workers: int) -> list[Replica]:
    """What the workers of a group hold, once so many are there. Raises TimeoutError."""
    deadline = time.monotonic() + JOIN_SECONDS
    while True:
        every = link.sessions.items()
        # A session without replicas is one whose STATUS is still on its way.
        sessions = {key: one for key, one in every if one.node_id.startswith(f"{group}/") and one.replicas}
        if len(sessions) >= workers:
            break
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(sessions)} of {workers} workers of {group} are there")
        time.sleep(0.02)
    return [
        Replica(key, session.node_id, held.claim_id, held.fence, held.layer, held.first, held.last,
                session.kernel_class, gives_sums=True, takes_q8_0=True)
        for key, session in sessions.items()
        for held in session.replicas
    ]  # fmt: skip


def _answer(report: WorkReport, tokens: float, seconds: float, cpu_seconds: float) -> dict[str, Any]:
    failures: Counter[str] = Counter()
    for (_, code), count in report.failures.items():
        failures[code] += count
    return {
        "tokens": tokens,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "places": {str(place): rows for place, rows in report.places.items()},
        "moments": {str(moment): count for moment, count in report.moments.items()},
        "failures": dict(failures),
    }


def _spent(before: LayerCounts, after: LayerCounts) -> dict[str, float]:
    """Calls of all layers between two readings, and their seconds by part (`hot_set_meter.StepTimes`)."""
    names = ("calls", *(name for name in vars(after) if name.endswith("_seconds")))
    return {name: float((getattr(after, name) - getattr(before, name)).sum()) for name in names}


def obey(backbone: Backbone, order: dict[str, Any]) -> dict[str, Any]:
    """Carries out one line."""
    match order:
        case {"prepare": sequences}:
            return backbone.prepare(sequences)
        case {"use": group, "workers": workers}:
            return backbone.use(group, workers)
        case {"round": steps}:
            return backbone.round(steps)
        case {"window": seconds, "warm": warm}:
            return backbone.window(seconds, warm)
        case {"demand": _}:
            return backbone.demand()
        case _:
            raise ValueError(f"unknown order {order}")


def main() -> None:
    logging.basicConfig(level=logging.ERROR)
    with ExitStack() as handles:
        backbone = Backbone(Options(**json.loads(sys.argv[1])), handles)
        print(json.dumps({"loaded": True}), flush=True)
        for line in sys.stdin:
            print(json.dumps(obey(backbone, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
