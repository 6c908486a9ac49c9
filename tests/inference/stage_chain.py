"""Stages in one process: cut, opened, chained; and a script of batches that plain llama.cpp can be fed as well."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from inference.gguf_index import open_index
from inference.llama import Batch, ContextSettings, Model
from inference.slices import write_slice
from inference.stage_context import HiddenBatch, StageContext
from inference.stage_file import open_stages

SETTINGS = ContextSettings(sequence_tokens=128, sequences=5, batch_tokens=48, threads=1, outputs=48)


def cut(model: Path, folder: Path, stages: int) -> list[Path]:
    """The files of so many stages over the whole trunk."""
    source = open_stages(open_index(model))
    paths = []
    for first, last in source.cuts.even(stages):
        paths.append(folder / f"{model.stem}-{first}-{last}.gguf")
        write_slice(source.plan(*source.cuts.units_of(first, last)), paths[-1])
    return paths


class Chain:
    """As a Context, its layers in stages of this process."""

    def __init__(self, contexts: list[StageContext]) -> None:
        self.contexts = contexts
        self._batches = [context.batch() for context in contexts]

    @classmethod
    @contextmanager
    def opened(cls, paths: list[Path], settings: ContextSettings = SETTINGS) -> Iterator["Chain"]:
        with ExitStack() as stack:
            models = [stack.enter_context(Model(path)) for path in paths]
            yield cls([stack.enter_context(StageContext(model, settings)) for model in models])

    def decode(self, batch: Batch) -> int:
        size, hidden = batch.size, None
        for context, own in zip(self.contexts, self._batches, strict=True):
            own.size = size
            for name in ("tokens", "positions", "sequences", "wants_logits"):
                getattr(own, name)[:size] = getattr(batch, name)[:size]
            if isinstance(own, HiddenBatch):
                own.hidden[:size] = hidden
            code = context.decode(own)
            if code != 0:
                return code
            hidden = None if context.stage.is_last else context.hidden(size).copy()
        return 0

    def logits(self, rows: int) -> npt.NDArray[np.float32]:
        return self.contexts[-1].logits(rows)

    def remove(self, sequence: int) -> None:
        for context in self.contexts:
            context.remove(sequence)

    def move(self, source: int, target: int) -> None:
        for context in self.contexts:
            context.move(source, target)

    def copy(self, source: int, target: int) -> None:
        for context in self.contexts:
            context.copy(source, target)


class Decoder(Protocol):
    """The part of `inference.decoding.DecodingContext` that the script uses."""

    def decode(self, batch: Batch) -> int: ...
    def logits(self, rows: int) -> npt.NDArray[np.float32]: ...
    def remove(self, sequence: int) -> None: ...
    def move(self, source: int, target: int) -> None: ...
    def copy(self, source: int, target: int) -> None: ...


def play(context: Decoder, steps: int = 24, seed: int = 3) -> npt.NDArray[np.float32]:
    """(rows, n_vocab): all logits of a day in a lane's life: prompts of unequal lengths in one batch, single tokens,
    sequences that end, move into gaps and are copied."""
    dice = np.random.default_rng(seed)
    batch = Batch(SETTINGS.batch_tokens)
    lengths: list[int] = []  # of the sequences 0, 1, 2 ...
    found = []
    for _ in range(steps):
        if len(lengths) < 2 or (len(lengths) < SETTINGS.sequences - 1 and dice.random() < 0.4):
            added = int(dice.integers(1, SETTINGS.sequences - len(lengths)))
            sizes = dice.integers(1, 13, added)
            _fill(batch, dice, [(len(lengths) + number, 0, int(size)) for number, size in enumerate(sizes)])
            lengths += sizes.tolist()
        elif dice.random() < 0.2:
            gone = int(dice.integers(len(lengths)))
            context.remove(gone)
            if gone != len(lengths) - 1:
                context.move(len(lengths) - 1, gone)
                lengths[gone] = lengths[-1]
            lengths.pop()
            continue
        elif dice.random() < 0.2 and len(lengths) < SETTINGS.sequences:
            context.copy(0, len(lengths))
            lengths.append(lengths[0])
            continue
        else:
            _fill(batch, dice, [(sequence, length, 1) for sequence, length in enumerate(lengths)])
            lengths = [length + 1 for length in lengths]
        assert context.decode(batch) == 0
        found.append(context.logits(int(batch.wants_logits[: batch.size].sum())).copy())
    return np.concatenate(found)


def _fill(batch: Batch, dice: np.random.Generator, runs: list[tuple[int, int, int]]) -> None:
    """runs: (sequence, first position, tokens); logits are wanted of each run's last token."""
    start = 0
    for sequence, position, size in runs:
        end = start + size
        batch.tokens[start:end] = dice.integers(20, 4000, size)
        batch.positions[start:end] = np.arange(position, position + size)
        batch.sequences[start:end] = sequence
        batch.wants_logits[start:end] = 0
        batch.wants_logits[end - 1] = 1
        start = end
    batch.size = start
