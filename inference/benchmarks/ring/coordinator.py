"""The coordinator of a ring: `python -m inference.benchmarks.ring.coordinator OPTIONS`, OPTIONS being JSON (`Options`).

Lanes over rings of stages that run already; it holds no layer. It obeys lines of JSON on stdin, one answer line each:

    {"prepare": N}                  N sequences over all lanes, prompts read               -> {"ready": N}
    {"round": STEPS}                STEPS tokens of every sequence, a thread per lane      -> {"tokens", "seconds", ...}
    {"round": STEPS, "lanes": K}    the same by the first K lanes: what a stage takes when nobody else computes
    {"first": 1}                    one new sequence: prompt, first token                  -> {"seconds"}
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from inference.benchmarks.side import GREEDY, PROMPT_TOKENS, prompt
from inference.generation import Generation, GenerationRequest, TokenEvent
from inference.gguf_index import open_index
from inference.lane import Lane
from inference.llama import ContextSettings, Model
from inference.ring.context import RingContext, RingCounts
from inference.ring.directory import StageDirectory


@dataclass(frozen=True)
class Options:
    """addresses: of every stage; secret: of the stages; sequences: of all lanes together; threads: of each stage."""

    model: str
    addresses: tuple[str, ...]
    secret: str
    lanes: int
    sequences: int
    threads: int = 1
    sequence_tokens: int = 256

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @property
    def context(self) -> ContextSettings:
        per_lane = -(-self.sequences // self.lanes)
        return ContextSettings(
            sequence_tokens=self.sequence_tokens,
            sequences=per_lane,
            batch_tokens=max(64, PROMPT_TOKENS * per_lane),
            threads=self.threads,
            outputs=per_lane,
        )


class Coordinator:
    """Nothing but the steps that it is told to take."""

    def __init__(self, options: Options, handles: ExitStack) -> None:
        path = Path(options.model)
        index = open_index(path)
        directory = StageDirectory(
            options.addresses, options.secret.encode(), fingerprint=index.fingerprint, layers=index.trunk_layers
        )
        self._model = handles.enter_context(Model(path, vocabulary_only=True))
        self._longest = options.sequence_tokens
        self._contexts = [
            handles.enter_context(RingContext(directory.open_line, options.context, self._model.vocabulary.size))
            for _ in range(options.lanes)
        ]
        self._lanes = [Lane(context) for context in self._contexts]
        self._unread: set[int] = set()
        self._tokens = 0
        self._last_start = 0.0  # when the newest sequence got its first token
        self._lock = threading.Lock()

    def prepare(self, sequences: int) -> dict[str, Any]:
        for lane in self._lanes:
            lane.abandon("cancelled")
        self._unread = set(range(sequences))
        for number in range(sequences):
            self._add(number, self._lanes[number % len(self._lanes)])
        while self._unread:
            for lane in self._lanes:
                lane.step()
        return {"ready": sequences}

    def first(self) -> dict[str, Any]:
        """Seconds from a request to its first token, in a lane that has nothing else to do (its step then goes on to
        the second one, which is not waited for)."""
        lane = self._lanes[0]
        lane.abandon("cancelled")
        began = time.perf_counter()
        self._unread = {0}
        self._add(0, lane)
        while self._unread:
            lane.step()
        return {"seconds": self._last_start - began}

    def round(self, steps: int, lanes: int) -> dict[str, Any]:
        busy = [lane for lane in self._lanes[:lanes] if lane.size]
        for context in self._contexts:
            context.counts = RingCounts()
        self._tokens = 0
        ready = threading.Barrier(len(busy) + 1)

        def run(lane: Lane) -> None:
            ready.wait()
            for _ in range(steps):
                lane.step()

        threads = [threading.Thread(target=run, args=(lane,)) for lane in busy]
        for thread in threads:
            thread.start()
        ready.wait()
        began = time.perf_counter()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - began
        total = RingCounts()
        for context in self._contexts:
            total.merge(context.counts)
        return {
            "tokens": self._tokens,
            "seconds": seconds,
            "step_seconds": total.step_seconds / total.steps,
            "stage_seconds": [spent / total.steps for spent in total.stage_seconds],
        }

    def _add(self, number: int, lane: Lane) -> None:
        vocabulary = self._model.vocabulary

        def on_event(event: TokenEvent) -> None:
            with self._lock:
                if number in self._unread:
                    self._unread.discard(number)
                    self._last_start = time.perf_counter()
                self._tokens += event.token >= 0

        request = GenerationRequest(str(number), prompt(number, vocabulary.size), GREEDY)
        lane.add(Generation(request, on_event, vocabulary, self._longest))


def obey(coordinator: Coordinator, order: dict[str, Any]) -> dict[str, Any]:
    """Carries out one line."""
    match order:
        case {"prepare": sequences}:
            return coordinator.prepare(sequences)
        case {"first": _}:
            return coordinator.first()
        case {"round": steps}:
            return coordinator.round(steps, order.get("lanes", 1 << 10))
        case _:
            raise ValueError(f"unknown order {order}")


def main() -> None:
    logging.basicConfig(level=logging.ERROR)
    body = json.loads(sys.argv[1])
    with ExitStack() as handles:
        coordinator = Coordinator(Options(**{**body, "addresses": tuple(body["addresses"])}), handles)
        print(json.dumps({"loaded": True}), flush=True)
        for line in sys.stdin:
            print(json.dumps(obey(coordinator, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
