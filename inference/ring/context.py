"""A context whose layers lie on a ring of stages: what a lane drives like a llama.cpp context of its own process.

A decode is one step around the ring: the operations on sequences since the last one, then the batch. When the ring
breaks, another one is opened and every living sequence is read again from the journal before the batch is repeated;
the trace of the lane notes all of it, so that plain llama.cpp, fed the same, must give the same bits.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from inference.decoding import RING_LOST
from inference.llama import Batch, ContextSettings, SamplerChain
from inference.ring.errors import RingError
from inference.ring.journal import Journal
from inference.ring.steps import Answer, Content, Operation, OperationKind, Step
from inference.trace import TraceWriter

logger = logging.getLogger(__name__)

DEFAULT_PATIENCE_SECONDS = 60.0
# A ring that fails at once, again and again, is not broken by a stage that went away.
MOST_ATTEMPTS = 8


class Line(Protocol):
    """An open ring: a fresh context on each of its stages."""

    def exchange(self, step: Step) -> Answer:
        """The last stage's answer, or an earlier one's that refused. Raises RingError when the ring is broken."""
        ...

    def close(self) -> None: ...


OpenLine = Callable[[ContextSettings, float], Line]
"""Opens a ring, waiting for missing stages until a moment of `time.monotonic`. Raises RingError."""


@dataclass
class RingCounts:
    """Since the start. losses: rings that broke; replayed_tokens: read again for that; stage_seconds: by stage, what
    its computing took; step_seconds: from sending steps to their answers."""

    steps: int = 0
    losses: int = 0
    replayed_tokens: int = 0
    step_seconds: float = 0.0
    stage_seconds: tuple[float, ...] = ()

    def add(self, answer: Answer, seconds: float) -> None:
        self.steps += 1
        self.step_seconds += seconds
        if answer.seconds:  # a part of a prompt was not waited for
            self._add_stages(answer.seconds)

    def merge(self, other: RingCounts) -> None:
        self.steps += other.steps
        self.losses += other.losses
        self.replayed_tokens += other.replayed_tokens
        self.step_seconds += other.step_seconds
        if other.stage_seconds:
            self._add_stages(other.stage_seconds)

    def _add_stages(self, seconds: tuple[float, ...]) -> None:
        """A ring of another length than before begins anew: its stages are not the same."""
        before = self.stage_seconds if len(self.stage_seconds) == len(seconds) else (0.0,) * len(seconds)
        self.stage_seconds = tuple(a + b for a, b in zip(before, seconds, strict=True))


class RingContext:
    """See `inference.decoding.DecodingContext`. A context manager; the ring opens with the first decode.

    patience_seconds: how long a decode may take to find a ring again. trace: the lane's, for what it does not see.
    """

    def __init__(
        self,
        open_line: OpenLine,
        settings: ContextSettings,
        vocabulary_size: int,
        *,
        patience_seconds: float = DEFAULT_PATIENCE_SECONDS,
        trace: TraceWriter | None = None,
    ) -> None:
        self.settings = settings
        self.vocabulary_size = vocabulary_size
        self.counts = RingCounts()
        self.trace = trace
        self._open_line = open_line
        self._patience_seconds = patience_seconds
        self._journal = Journal()
        self._line: Line | None = None
        self._was_open = False
        self._operations: list[Operation] = []
        self._logits: npt.NDArray[np.float32] = np.zeros((0, vocabulary_size), np.float32)
        self._output_rows: npt.NDArray[np.intp] = np.zeros(0, np.intp)
        self._replay = Batch(settings.batch_tokens)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets the stages free their contexts. Harmless when done twice."""
        line, self._line = self._line, None
        if line is not None:
            line.close()

    # --- batches ------------------------------------------------------------------------------------------------------
    def decode(self, batch: Batch) -> int:
        """As `Context.decode`; RING_LOST when no ring of stages computed it in time: nothing is lost then but time."""
        answer = self._decode(batch)
        if answer is None:
            return RING_LOST
        if answer.code == 0:
            size = batch.size
            self._journal.decoded(batch.tokens[:size], batch.positions[:size], batch.sequences[:size])
            self._logits = answer.values
            self._output_rows = np.cumsum(batch.wants_logits[:size] != 0) - 1
        return answer.code

    def logits(self, rows: int) -> npt.NDArray[np.float32]:
        return self._logits[:rows]

    def logits_of(self, row: int) -> npt.NDArray[np.float32]:
        found: npt.NDArray[np.float32] = self._logits[self._output_rows[row]]
        return found

    def choose(self, chain: SamplerChain, row: int) -> int:
        return chain.sample_logits(self.logits_of(row))

    # --- sequences ----------------------------------------------------------------------------------------------------
    def remove(self, sequence: int) -> None:
        self._journal.remove(sequence)
        self._operations.append(Operation(OperationKind.REMOVE, sequence))

    def move(self, source: int, target: int) -> None:
        self._journal.move(source, target)
        self._operations.append(Operation(OperationKind.MOVE, source, target))

    def copy(self, source: int, target: int) -> None:
        self._journal.copy(source, target)
        self._operations.append(Operation(OperationKind.COPY, source, target))

    def clear(self) -> None:
        self._journal.clear()
        self._operations = [Operation(OperationKind.CLEAR)]  # what came before it no longer matters

    # --- the ring -----------------------------------------------------------------------------------------------------
    def _decode(self, batch: Batch) -> Answer | None:
        """The answer of a ring, if need be of another one; None when there is none in time."""
        deadline = time.monotonic() + self._patience_seconds
        for _ in range(MOST_ATTEMPTS):
            try:
                line = self._line or self._restored(deadline)
                answer = self._exchange(line, batch)
            except RingError as error:
                self._lose(error)
                if time.monotonic() >= deadline:
                    return None
                continue
            if answer.code != 0:
                # Stages before the one that refused have read the batch, those behind it have not even heard of the
                # operations: their memories no longer agree.
                self.close()
            return answer
        return None

    def _exchange(self, line: Line, batch: Batch) -> Answer:
        began, size = time.monotonic(), batch.size
        step = Step(
            tuple(self._operations),
            batch.positions[:size],
            batch.sequences[:size],
            batch.wants_logits[:size],
            tokens=batch.tokens[:size],
        )
        answer = line.exchange(step)
        self._operations.clear()
        rows = int(np.count_nonzero(step.wants_logits))
        shape = (rows, self.vocabulary_size)
        if answer.code == 0 and rows and (answer.content is not Content.LOGITS or answer.values.shape != shape):
            raise RingError(f"the last stage answered with {answer.values.shape} values, {shape} were asked for")
        self.counts.add(answer, time.monotonic() - began)
        return answer

    def _restored(self, deadline: float) -> Line:
        """A new ring that has read what the lost one had. Raises RingError."""
        line = self._line = self._open_line(self.settings, deadline)
        self._operations.clear()  # the journal has followed them
        if self._was_open and self.trace:
            self.trace.clear()
        self._was_open = True
        for chunk in self._journal.chunks(self.settings.batch_tokens):
            batch, size = self._replay, len(chunk.tokens)
            batch.size = size
            batch.tokens[:size], batch.positions[:size] = chunk.tokens, chunk.positions
            batch.sequences[:size], batch.wants_logits[:size] = chunk.sequences, 0
            answer = self._exchange(line, batch)
            if answer.code != 0:
                raise RingError(f"the new ring cannot read what the lost one had: code {answer.code}")
            self.counts.replayed_tokens += size
            if self.trace:
                self.trace.decode(batch, 0, None)
        return line

    def _lose(self, error: RingError) -> None:
        if self._line is not None:
            self.counts.losses += 1
            logger.warning("the ring is lost, its sequences will be read again: %s", error)
            self.close()
        else:
            logger.warning("no ring: %s", error)
