"""Runs one case and records its traces: `python -m inference.verify.recorded_run --case JSON --model M --out FOLDER`.

A process of its own: it installs our expert backend, which ggml keeps for good. Starts the worker processes of the
case, drives the engine, prints one JSON object: the traces, how the requests ended, where expert rows were computed.
"""

from __future__ import annotations

import argparse
import json
import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from inference.backend import SwarmBackend
from inference.dispatch import Dispatcher, DispatchPolicy
from inference.engine import Engine
from inference.generation import GenerationRequest, TokenEvent
from inference.gguf_index import ModelIndex, open_index
from inference.hot_set import HotBudget
from inference.hot_set_keeper import HotSetKeeper
from inference.rows import RowType
from inference.sampling import SamplingParameters
from inference.verify.cases import Case, holdings
from inference.verify.local_swarm import LocalSwarm

CONTEXT_TOKENS = 512
PATIENCE_SECONDS = 300.0
HOT_PLAN_SECONDS = 0.2
OPENINGS = (
    "In the beginning God created the heaven and the earth",
    "Once upon a time there was a",
    "The old man looked at the sea and",
    "My dear sister, I have",
    "Call me Ishmael. Some years ago",
    "To be, or not to be: that is",
    "Gentlemen of the Senate and of the House of Representatives,",
)


@dataclass
class Outcome:
    """finishes: how often each; places: expert rows by place (`RowPlace`); failures: by code; remote_share: of rows;
    reused_tokens: of prompts, taken from kept states; replayed_tokens: read again because a stage was lost."""

    finishes: dict[str, int]
    places: dict[str, int]
    failures: dict[str, int]
    remote_share: float
    reused_tokens: int
    traces: list[str]
    replayed_tokens: int = 0


class Workload:
    """Submits the requests of a case and waits for their ends. kill: what a case that kills does, once."""

    def __init__(self, case: Case, engine: Engine, kill: Callable[[], None]) -> None:
        self._case, self._engine, self._kill = case, engine, kill
        self._total = case.requests * case.tokens
        self._tokens = 0
        self._left = case.requests
        self._done = threading.Event()
        self._lock = threading.Lock()
        self.finishes: dict[str, int] = {}

    def run(self) -> None:
        for number in range(self._case.requests):
            self._engine.submit(self._request(number), partial(self._listen, number))
        if not self._done.wait(PATIENCE_SECONDS):
            raise TimeoutError(f"{self._left} requests did not end within {PATIENCE_SECONDS:.0f} s")

    def _request(self, number: int) -> GenerationRequest:
        """Prompts and answers of different lengths, so that sequences join and leave at different times."""
        case = self._case
        prompt = self._engine.tokenize(" ".join([OPENINGS[number % len(OPENINGS)]] * (1 + number % 3)))
        if case.kept:
            prompt = self._engine.tokenize(" ".join(OPENINGS)) + prompt
        # A full batch is wanted where there are no more requests than sequences, so there all are equally long.
        spread = 0 if case.requests <= case.sequences else number % 7 - 3
        sampling = SamplingParameters(
            temperature=0.8, seed=number, max_tokens=max(2, case.tokens + spread), ignore_eos=True
        )
        return GenerationRequest(str(number), tuple(prompt), sampling)

    def _listen(self, number: int, event: TokenEvent) -> None:
        with self._lock:
            self._tokens += 1
            kill = self._case.kill and self._tokens == self._total // 3
            if event.finish is not None:
                self.finishes[event.finish] = self.finishes.get(event.finish, 0) + 1
                self._left -= 1
                if self._left == 0:
                    self._done.set()
        if kill:
            self._kill()
        if self._case.cancel and number % 5 == 4 and event.index == self._case.tokens // 2:
            self._engine.cancel(str(number))


def run(case: Case, model: Path, out: Path) -> Outcome:
    """Raises InferenceError, TimeoutError."""
    index = open_index(model)
    with ExitStack() as handles:
        swarm = handles.enter_context(LocalSwarm(index, holdings(case, index), out / "slices", kernel=case.kernel))
        dispatcher = dispatcher_of(case, index, swarm)
        backend = SwarmBackend.install(dispatcher)
        engine = Engine(
            model,
            lanes=case.lanes,
            sequences=case.sequences,
            context_tokens=CONTEXT_TOKENS,
            threads=case.threads,
            lane_context=backend.lane,
            trace_dir=out,
            kept_sequences=case.kept,
        )
        handles.callback(engine.stop)
        if case.hot:
            bytes_limit = index.routed_bytes // 4
            keeper = HotSetKeeper(
                index, dispatcher, HotBudget(bytes_limit, seconds=60.0), plan_seconds=HOT_PLAN_SECONDS
            )
            keeper.start()
            handles.callback(keeper.stop)
        engine.start()
        workload = Workload(case, engine, partial(swarm.kill, 0))
        workload.run()
        reused = engine.stats().reused_tokens
        engine.stop()
    report = dispatcher.take_report()
    places = {str(place): int(rows) for place, rows in report.places.items()}
    failures: dict[str, int] = {}
    for (_, code), count in report.failures.items():
        failures[code] = failures.get(code, 0) + count
    return Outcome(
        finishes=workload.finishes,
        places=places,
        failures=failures,
        reused_tokens=reused,
        remote_share=places.get("remote", 0) / max(1, sum(places.values())),
        traces=[str(out / f"lane-{lane}.jsonl") for lane in range(case.lanes)],
    )


def dispatcher_of(case: Case, index: ModelIndex, swarm: LocalSwarm) -> Dispatcher:
    # The limits of a real network do not matter here: everything that can go to a worker shall go there.
    policy = DispatchPolicy(
        deadline_seconds=10.0,
        shortest_deadline_seconds=10.0,
        tokens_limit=1 << 16,
        owner_bytes_limit=1 << 30,
        row_type=RowType.Q8 if case.row_type == "q8" else RowType.F32,
    )
    dispatcher = Dispatcher(swarm, layers=index.trunk_layers, experts_per_layer=index.experts_per_layer, policy=policy)
    dispatcher.set_replicas(swarm.table)
    return dispatcher


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs one verification case and records its traces.")
    parser.add_argument("--case", required=True, help="The case as JSON.")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    case: dict[str, Any] = json.loads(options.case)
    print(json.dumps(run(Case.from_json(case), options.model, options.out).__dict__))


if __name__ == "__main__":
    main()
