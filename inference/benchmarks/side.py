"""One side of a comparison in a process of its own: `python -m inference.benchmarks.side --side ours --model M ...`.

The process loads the model once and then obeys lines of JSON on stdin, one answer line on stdout each, so that rounds
of two sides can alternate while both keep their model:

    {"prepare": BATCH}  read BATCH prompts             -> {"ready": BATCH}
    {"round": STEPS}    BATCH tokens in each of STEPS  -> {"tokens": ..., "seconds": ..., "cpu_seconds": ...}

Sides: `ours` = the engine's lane with the expert backend, a dispatcher without workers, a listener that takes every
event; `plain` = a bare llama_decode loop with llama.cpp's greedy sampler, `use_extra_bufts=False`; `plain-defaults` =
the same with llama.cpp's defaults (repacked weights), which dies by a signal on some machines.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from inference.backend import SwarmBackend
from inference.dispatch import Dispatcher, DispatchPolicy
from inference.generation import Generation, GenerationRequest, TokenEvent
from inference.gguf_index import open_index
from inference.lane import Lane
from inference.llama import Batch, Context, ContextSettings, Model, SamplerChain
from inference.sampling import SamplingParameters
from relay.work import Dispatch, OnDone

SIDES = ("ours", "plain", "plain-defaults")
PROMPT_TOKENS = 4
GREEDY = SamplingParameters(temperature=0.0, max_tokens=1 << 20, ignore_eos=True)


def prompt(number: int, vocabulary_size: int) -> tuple[int, ...]:
    """A different prompt for every sequence; the same on every side."""
    values = np.random.default_rng(number).integers(20, vocabulary_size - 20, PROMPT_TOKENS)
    return tuple(int(value) for value in values)


class NoWorkers:
    """The transport of a swarm without workers: the dispatcher has nobody to send anything to."""

    def submit_many(self, dispatches: Sequence[tuple[Dispatch, OnDone]]) -> list[int]:
        raise AssertionError("there are no workers")

    def cancel(self, requests: Sequence[int]) -> None:
        raise AssertionError("there are no workers")


class Side(Protocol):
    def prepare(self, batch: int) -> None:
        """Starts `batch` sequences, prompts read."""

    def step(self) -> int:
        """One token of every sequence; returns how many."""


class OurSide:
    """The lane as the engine drives it."""

    def __init__(self, context: Context, model: Model) -> None:
        self._context, self._model = context, model
        self._lane = Lane(context)
        self._events: list[TokenEvent] = []

    def prepare(self, batch: int) -> None:
        self._lane.abandon("cancelled")
        vocabulary, longest = self._model.vocabulary, self._context.settings.sequence_tokens
        started: set[int] = set()
        for number in range(batch):
            request = GenerationRequest(str(number), prompt(number, vocabulary.size), GREEDY)
            first = partial(_note_start, started, number, self._events)
            self._lane.add(Generation(request, first, vocabulary, longest))
        while len(started) < batch:
            self._lane.step()

    def step(self) -> int:
        self._events.clear()
        self._lane.step()
        return len(self._events)


def _note_start(started: set[int], number: int, events: list[TokenEvent], event: TokenEvent) -> None:
    started.add(number)
    events.append(event)


class PlainSide:
    """A bare loop over llama_decode and llama.cpp's greedy sampler: no text, no events, no bookkeeping."""

    def __init__(self, context: Context, model: Model) -> None:
        self._context, self._model = context, model
        self._chain = SamplerChain(model.vocabulary)
        self._chain.add_ban(sorted(model.vocabulary.end_tokens))
        self._chain.add_greedy()
        self._batch = Batch(context.settings.sequences)
        self._batch.sequences[:] = np.arange(self._batch.capacity)
        self._batch.wants_logits[:] = 1

    def prepare(self, batch: int) -> None:
        self._context.clear()
        at_once = self._context.settings.batch_tokens // PROMPT_TOKENS
        for first in range(0, batch, at_once):
            self._read(range(first, min(first + at_once, batch)))
        self._batch.size = batch
        self._batch.positions[:batch] = PROMPT_TOKENS

    def _read(self, numbers: range) -> None:
        """The prompts of these sequences in one decode; the first token of each."""
        reader = Batch(len(numbers) * PROMPT_TOKENS)
        reader.size = reader.capacity
        reader.tokens[:] = np.concatenate([prompt(number, self._model.vocabulary.size) for number in numbers])
        reader.positions[:] = np.tile(np.arange(PROMPT_TOKENS), len(numbers))
        reader.sequences[:] = np.repeat(list(numbers), PROMPT_TOKENS)
        reader.wants_logits[PROMPT_TOKENS - 1 :: PROMPT_TOKENS] = 1
        assert self._context.decode(reader) == 0
        for place, number in enumerate(numbers):
            self._batch.tokens[number] = self._chain.sample(self._context, (place + 1) * PROMPT_TOKENS - 1)

    def step(self) -> int:
        batch, context, chain = self._batch, self._context, self._chain
        assert context.decode(batch) == 0
        size = batch.size
        batch.tokens[:size] = [chain.sample(context, row) for row in range(size)]
        batch.positions[:size] += 1
        return size


def open_side(name: str, path: Path, settings: ContextSettings, handles: ExitStack, *, gpu_layers: int = 0) -> Side:
    """Loads the model; `handles` frees what was opened."""
    lane_context: Any = nullcontext()
    if name == "ours":
        index = open_index(path)
        dispatcher = Dispatcher(
            NoWorkers(),
            layers=index.trunk_layers,
            experts_per_layer=index.experts_per_layer,
            policy=DispatchPolicy(),
        )
        lane_context = SwarmBackend.install(dispatcher).lane(0, settings.threads)
    model = handles.enter_context(Model(path, use_extra_bufts=name == "plain-defaults", gpu_layers=gpu_layers))
    with lane_context:
        context = handles.enter_context(Context(model, settings))
    return OurSide(context, model) if name == "ours" else PlainSide(context, model)


def obey(side: Side, command: dict[str, int]) -> dict[str, Any]:
    """Carries out one command line."""
    match command:
        case {"prepare": batch}:
            side.prepare(batch)
            return {"ready": batch}
        case {"round": steps}:
            cpu, start = time.process_time(), time.perf_counter()
            tokens = sum(side.step() for _ in range(steps))
            seconds = time.perf_counter() - start
            return {"tokens": tokens, "seconds": seconds, "cpu_seconds": time.process_time() - cpu}
        case _:
            raise ValueError(f"unknown command {command}")


def main() -> None:
    parser = argparse.ArgumentParser(description="One side of a benchmark; obeys JSON lines on stdin.")
    parser.add_argument("--side", choices=SIDES, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--sequences", type=int, required=True)
    parser.add_argument("--sequence-tokens", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--gpu-layers", type=int, default=0)
    options = parser.parse_args()
    settings = ContextSettings(
        sequence_tokens=options.sequence_tokens,
        sequences=options.sequences,
        batch_tokens=max(64, options.sequences),
        threads=options.threads,
        outputs=options.sequences,
    )
    with ExitStack() as handles:
        side = open_side(options.side, options.model, settings, handles, gpu_layers=options.gpu_layers)
        print(json.dumps({"loaded": options.side}), flush=True)
        for line in sys.stdin:
            print(json.dumps(obey(side, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
