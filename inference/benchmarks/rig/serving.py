"""The rig's backbone with a whole engine: `python -m inference.benchmarks.rig.serving OPTIONS` (JSON of `Options`).

The engine as a server has it: admission, waiting requests, prompts in turns, many answers at once. Obeys lines of JSON:

    {"use": GROUP, "workers": K}   waits for K workers and uses them        -> {"replicas": ...}
    {"load": LOAD}                 arrivals for a while (`Load`), then waits -> {"answers": [...], "seconds": ..., ...}
    {"closed": LOAD, "clients": C} C askers for a while, each asks anew when its answer ends -> the same
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from inference.backend import SwarmBackend
from inference.benchmarks.relay.names import BACKBONE_TOKEN, BUILD
from inference.benchmarks.rig.backbone import replicas_of
from inference.dispatch import Dispatcher, DispatchPolicy
from inference.engine import Engine
from inference.generation import GenerationRequest, TokenEvent
from inference.gguf_index import open_index
from inference.kernel import kernel_class_name
from inference.replica_table import ReplicaTable
from inference.sampling import SamplingParameters
from relay.backbone_link import BackboneLink

PATIENCE_SECONDS = 90.0


@dataclass(frozen=True)
class Options:
    model: str
    relay: str
    lanes: int = 2
    sequences: int = 16
    threads: int = 2
    context_tokens: int = 1024

    def to_json(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class Load:
    """Poisson arrivals, `rate` a second for `seconds`; kinds: (name, share, tokens of the prompt, of the answer)."""

    rate: float
    seconds: float
    kinds: tuple[tuple[str, float, int, int], ...]
    seed: int = 0


@dataclass
class Answer:
    """One request's life; times in seconds of the process's clock. `first`: of the first token, 0 while there is none;
    gaps: between two tokens."""

    kind: str
    arrived: float
    first: float = 0.0
    ended: float = 0.0
    finish: str = ""
    tokens: int = 0
    gaps: list[float] = field(default_factory=list)
    last: float = 0.0

    def take(self, event: TokenEvent, now: float) -> None:
        if event.token >= 0:
            self.tokens += 1
            if self.last:
                self.gaps.append(now - self.last)
            else:
                self.first = now
            self.last = now
        if event.finish is not None:
            self.finish, self.ended = event.finish, now

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "wait": self.first - self.arrived if self.first else None,
            "took": self.ended - self.arrived,
            "finish": self.finish,
            "tokens": self.tokens,
            "gaps": [round(gap, 5) for gap in self.gaps],
        }


class Serving:
    def __init__(self, options: Options, handles: ExitStack) -> None:
        index = open_index(Path(options.model))
        self._experts = index.experts_per_layer
        self.link = BackboneLink(
            [options.relay], token=BACKBONE_TOKEN, build=BUILD, kernel_class=kernel_class_name(), name="rig"
        )
        self.dispatcher = Dispatcher(
            self.link, layers=max(index.layers) + 1, experts_per_layer=self._experts, policy=DispatchPolicy()
        )
        self.engine = Engine(
            Path(options.model),
            lanes=options.lanes,
            sequences=options.sequences,
            context_tokens=options.context_tokens,
            threads=options.threads,
            lane_context=SwarmBackend.install(self.dispatcher).lane,
            on_unwanted=self.dispatcher.abort,
        )
        self.link.start()
        handles.callback(self.link.stop)
        self.engine.start()
        handles.callback(self.engine.stop)
        self._count = 0

    def use(self, group: str, workers: int) -> dict[str, Any]:
        replicas = replicas_of(self.link, group, workers)
        self.dispatcher.set_replicas(ReplicaTable(replicas, experts_per_layer=self._experts))
        return {"replicas": len(replicas)}

    def load(self, load: Load) -> dict[str, Any]:
        """Every answer; raises TimeoutError when some do not end."""
        random = np.random.default_rng(load.seed)
        answers: list[Answer] = []
        began = time.monotonic()
        due = began + random.exponential(1.0 / load.rate)
        while due < began + load.seconds:
            time.sleep(max(0.0, due - time.monotonic()))
            answers.append(self._ask_any(load, random))
            due += random.exponential(1.0 / load.rate)
        return self._ended(answers, began, load)

    def closed(self, load: Load, clients: int) -> dict[str, Any]:
        """`clients` requests at any time, so as many answers as can be had: `rate` does not matter. As `load`."""
        random = np.random.default_rng(load.seed)
        began = time.monotonic()
        answers = [self._ask_any(load, random) for _ in range(clients)]
        while time.monotonic() < began + load.seconds:
            ended = sum(bool(answer.finish) for answer in answers)
            answers += [self._ask_any(load, random) for _ in range(clients - len(answers) + ended)]
            time.sleep(0.005)
        return self._ended(answers, began, load)

    def _ended(self, answers: list[Answer], began: float, load: Load) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not all(answer.finish for answer in answers):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{sum(not answer.finish for answer in answers)} answers did not end")
            time.sleep(0.02)
        report = self.dispatcher.take_report()
        return {
            "answers": [answer.to_json() for answer in answers],
            "seconds": max(answer.ended for answer in answers) - began if answers else load.seconds,
            "per_second": settled(answers, began, load.seconds),
            "places": {str(place): rows for place, rows in report.places.items()},
        }

    def _ask_any(self, load: Load, random: np.random.Generator) -> Answer:
        """A request of a kind by chance."""
        shares = [kind[1] for kind in load.kinds]
        name, _, prompt_tokens, answer_tokens = load.kinds[int(random.choice(len(shares), p=shares))]
        prompt = random.integers(20, self.engine.vocabulary_size - 20, prompt_tokens)
        return self._ask(name, tuple(int(token) for token in prompt), answer_tokens)

    def _ask(self, kind: str, prompt: tuple[int, ...], tokens: int) -> Answer:
        self._count += 1
        answer = Answer(kind, time.monotonic())
        sampling = SamplingParameters(temperature=0.8, seed=self._count, max_tokens=tokens, ignore_eos=True)
        request = GenerationRequest(str(self._count), prompt, sampling)
        lock = threading.Lock()

        def on_event(event: TokenEvent) -> None:
            with lock:
                answer.take(event, time.monotonic())

        self.engine.submit(request, on_event)
        return answer


def settled(answers: list[Answer], began: float, seconds: float) -> float:
    """Answers that ended per second, in the second half of the time in which requests came."""
    first, last = began + seconds / 2, began + seconds
    return sum(first <= answer.ended < last for answer in answers) / (seconds / 2)


def main() -> None:
    logging.basicConfig(level=logging.ERROR)
    with ExitStack() as handles:
        serving = Serving(Options(**json.loads(sys.argv[1])), handles)
        print(json.dumps({"loaded": True}), flush=True)
        for line in sys.stdin:
            order = json.loads(line)
            if "use" in order:
                answer = serving.use(order["use"], order["workers"])
            elif "closed" in order:
                answer = serving.closed(Load(**order["closed"]), order["clients"])
            else:
                answer = serving.load(Load(**order["load"]))
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
