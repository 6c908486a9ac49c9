"""What a stage does with the messages of rings: one context per ring, steps checked before they are computed.

The same for direct TCP and for the relay, where `answer` takes and gives bytes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from inference.errors import InferenceError
from inference.llama import Batch, ContextSettings
from inference.ring.errors import BadStep, StageFull, UnknownRing
from inference.ring.steps import (
    Answer,
    Body,
    Close,
    Content,
    Describe,
    Failed,
    Open,
    Opened,
    Operation,
    OperationKind,
    StageDescription,
    Step,
    read_message,
    write_message,
)
from inference.stage_context import HiddenBatch, StageContext

logger = logging.getLogger(__name__)

DEFAULT_RINGS = 8
# A ring that came through the relay has no connection whose end would tell that nobody wants it any more.
IDLE_SECONDS = 600.0

OpenContext = Callable[[ContextSettings], StageContext]


@dataclass
class HeldRing:
    """The context of one ring; `lock` keeps its steps apart, and its end from them."""

    context: StageContext
    batch: Batch
    lock: threading.Lock = field(default_factory=threading.Lock)
    used_at: float = field(default_factory=time.monotonic)
    is_closed: bool = False

    def close(self) -> None:
        with self.lock:
            self.is_closed = True
            self.context.close()


class StageService:
    """Answers steps with one stage. rings: contexts at most; at_once: steps that compute at the same time, the others
    wait (each uses all of the threads that its ring asks for). Methods may be called from any thread.
    """

    def __init__(
        self,
        description: StageDescription,
        open_context: OpenContext,
        *,
        rings: int = DEFAULT_RINGS,
        at_once: int = 1,
    ) -> None:
        self.description = description
        self._open_context = open_context
        self._limit = rings
        self._rings: dict[bytes, HeldRing] = {}
        self._lock = threading.Lock()
        self._computing = threading.Semaphore(at_once)

    @property
    def is_first(self) -> bool:
        return self.description.first == 0

    @property
    def is_last(self) -> bool:
        return self.description.last == self.description.layers

    @property
    def ring_count(self) -> int:
        return len(self._rings)

    def open(self, ring: bytes, settings: ContextSettings) -> None:
        """Raises StageFull, ContextNotMade, BadStep for a ring that is open already."""
        with self._lock:
            self._drop_idle()
            if ring in self._rings:
                raise BadStep("this ring is open already")
            if len(self._rings) >= self._limit:
                raise StageFull(f"this stage serves {len(self._rings)} rings and may serve {self._limit}")
            context = self._open_context(settings)
            self._rings[ring] = HeldRing(context, context.batch())
        logger.info("ring %s: %s", ring.hex()[:8], settings)

    def close(self, ring: bytes) -> None:
        """Frees the context. Harmless for a ring that is not open."""
        with self._lock:
            held = self._rings.pop(ring, None)
        if held is not None:
            held.close()
            logger.info("ring %s is closed", ring.hex()[:8])

    def stop(self) -> None:
        """Frees every context and opens no more."""
        with self._lock:
            self._limit = 0
        for ring in list(self._rings):
            self.close(ring)

    def compute(self, ring: bytes, step: Step) -> Answer:
        """Raises UnknownRing, BadStep."""
        held = self._rings.get(ring)
        if held is None:
            raise UnknownRing("this stage holds no such ring")
        with held.lock, self._computing:
            if held.is_closed:
                raise UnknownRing("this ring has just been closed")
            held.used_at = time.monotonic()
            self._check(held.context.settings, step)
            began = time.perf_counter()
            for operation in step.operations:
                _apply(held.context, operation)
            _fill(held.batch, step)
            code = held.context.decode(held.batch)
            if code != 0:
                return Answer(code, seconds=(time.perf_counter() - began,))
            answer = self._output(held.context, step)
            return replace(answer, seconds=(time.perf_counter() - began,))

    def answer(self, data: bytes) -> bytes:
        """One message of a ring that comes through the relay, whose coordinator carries every step itself. Raises
        BadStep for what is no message; whatever else goes wrong is answered with FAILED."""
        message = read_message(data)
        try:
            answer = self._answer(message.ring, message.body)
        except InferenceError as error:
            answer = failed(0, error)
        return write_message(message.ring, message.number, answer)

    def _answer(self, ring: bytes, body: Body) -> Body:
        match body:
            case Describe():
                return Opened((self.description,))
            case Open(settings, route):
                if route:
                    raise BadStep("a ring through the relay has no route: its coordinator carries the steps")
                self.open(ring, settings)
                return Opened((self.description,))
            case Step():
                return self.compute(ring, body)
            case Close():
                self.close(ring)
                return Opened()
            case _:
                raise BadStep(f"{type(body).__name__} is nothing to ask a stage for")

    def _output(self, context: StageContext, step: Step) -> Answer:
        if not self.is_last:
            return Answer(0, Content.HIDDEN, context.hidden(step.rows))
        rows = int(np.count_nonzero(step.wants_logits))
        # llama.cpp's memory: a copy outlives the context, which another thread may close.
        return Answer(0, Content.LOGITS, context.logits(rows).copy()) if rows else Answer(0)

    def _check(self, settings: ContextSettings, step: Step) -> None:
        """What llama.cpp would take amiss, or as something else. Raises BadStep."""
        if step.rows > settings.batch_tokens:
            raise BadStep(f"{step.rows} rows, the ring was opened for {settings.batch_tokens}")
        if not _within(step.sequences, settings.sequences) or not _within(step.positions, settings.sequence_tokens):
            raise BadStep("a sequence or a position outside of what the ring was opened for")
        if any(max(one.source, one.target) >= settings.sequences for one in step.operations):
            raise BadStep("an operation on a sequence outside of what the ring was opened for")
        if self.is_last and np.count_nonzero(step.wants_logits) > settings.outputs:
            raise BadStep(f"logits of more than {settings.outputs} rows")
        if self.is_first != (step.tokens is not None):
            raise BadStep("the first stage of a model reads tokens, all others hidden states")
        if step.tokens is not None and not _within(step.tokens, self.description.vocabulary_size):
            raise BadStep("a token outside of the vocabulary")
        if step.hidden is not None and step.hidden.shape[1] != self.description.n_embd:
            raise BadStep(f"hidden states of {step.hidden.shape[1]} values, the model's have {self.description.n_embd}")

    def _drop_idle(self) -> None:
        if len(self._rings) < self._limit:
            return
        before = time.monotonic() - IDLE_SECONDS
        for ring in [ring for ring, held in self._rings.items() if held.used_at < before]:
            self._rings.pop(ring).close()


def failed(stage: int, error: InferenceError) -> Failed:
    return Failed(stage, error.code, str(error))


def _within(values: np.ndarray[tuple[int], np.dtype[np.int32]], limit: int) -> bool:
    return bool(values.min() >= 0 and values.max() < limit)


def _apply(context: StageContext, operation: Operation) -> None:
    match operation.kind:
        case OperationKind.REMOVE:
            context.remove(operation.source)
        case OperationKind.MOVE:
            context.move(operation.source, operation.target)
        case OperationKind.COPY:
            context.copy(operation.source, operation.target)
        case OperationKind.CLEAR:
            context.clear()


def _fill(batch: Batch, step: Step) -> None:
    size = batch.size = step.rows
    batch.positions[:size], batch.sequences[:size] = step.positions, step.sequences
    batch.wants_logits[:size] = step.wants_logits
    if isinstance(batch, HiddenBatch):
        assert step.hidden is not None
        batch.hidden[:size] = step.hidden
    else:
        assert step.tokens is not None
        batch.tokens[:size] = step.tokens
