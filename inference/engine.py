"""The engine: one model, several lanes in threads, a waiting queue, and an event for every token.

Knows tokens and contexts; nothing of claims, money, sockets or Django. The work of a lane is `Lane.step()`; the thread
of a lane only repeats it and sleeps on a condition while there is nothing to do. Events are delivered from lane threads
(or from the caller's, when a waiting request is cancelled), so a listener must be quick.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from bisect import insort
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from inference.decoding import DecodingContext
from inference.errors import BadParameter, DenseModel, Draining, QueueFull
from inference.generation import Generation, GenerationRequest, TokenEvent, check_request
from inference.gguf_index import open_index
from inference.lane import Lane
from inference.llama import Context, ContextSettings, Model
from inference.rate import RateMeter
from inference.ring.context import RingContext, RingCounts
from inference.ring.policy import LaneKind, Rings, kind_for
from inference.row_places import RowPlaces
from inference.trace import TraceHeader, TraceWriter
from inference.trusted_lanes import TrustedLanes

logger = logging.getLogger(__name__)

DEFAULT_BATCH_TOKENS = 512
DEFAULT_QUEUE_LENGTH = 1024
DEFAULT_PREFILL_TOKENS = 256
# The `error` of requests that were still running when the engine stopped: another attempt may resume them.
STOPPED = "engine stopped"

LaneContext = Callable[[int, int], AbstractContextManager[object]]


@dataclass(frozen=True)
class EngineStats:
    """sequences: (active, waiting); tokens_per_second: generated tokens, averaged over about ten seconds;
    reused_tokens: of prompts, whose state was kept and not read again."""

    sequences_active: int
    sequences_waiting: int
    sequences_limit: int
    tokens_generated: int
    prompt_tokens: int
    reused_tokens: int
    decodes: int
    failed_decodes: int
    tokens_per_second: float
    lane_sequences: tuple[int, ...]


@dataclass(frozen=True)
class LaneShape:
    """One lane to be opened. seats: requests at once; the settings' other sequences keep states of ended ones."""

    kind: LaneKind
    settings: ContextSettings
    seats: int

    @classmethod
    def of(
        cls,
        context_tokens: int,
        batch_tokens: int,
        seats: int,
        kept: int,
        threads: int,
        kind: LaneKind = LaneKind.LOCAL,
    ) -> LaneShape:
        sequences = seats + kept
        settings = ContextSettings(context_tokens, sequences, max(batch_tokens, sequences), threads, sequences)
        return cls(kind, settings, seats)


class Engine:
    """Serves requests on `lanes` contexts of one mapped model.

    sequences: at once over all lanes; context_tokens: longest prompt and answer together; threads: cores over all lanes
    together (0: all cores of this process); gpu_layers: see `Model`; prefill_tokens: most prompt tokens of one step of
    a lane while others generate there; kept_sequences: states of ended sequences that each lane keeps for prompts that
    go on from them (each costs the memory of a sequence; answers then depend on what was asked before in their last
    bits, as they depend on what is asked at the same time); lane_context(lane, threads): entered while a lane's context
    is created, so that an expert backend can be tied to it; trace_dir: one trace per lane is written there, together of
    at most trace_bytes; on_unwanted(lane): called when nobody wants the step in which a lane is any more (all its
    requests are cancelled, or the engine stops); row_places: where the expert backend counts rows for requests that ask
    for it; trusted_lanes: who tells the dispatcher of requests that trust few workers; rings: further lanes, on rings
    of stages. With no lane but those the model may be one that this host could not load: only its vocabulary is.
    Raises ModelNotLoaded; `start` raises ContextNotMade.
    """

    def __init__(
        self,
        model_path: Path,
        *,
        lanes: int = 1,
        sequences: int = 8,
        context_tokens: int = 1024,
        threads: int = 0,
        gpu_layers: int = 0,
        lane_context: LaneContext | None = None,
        trace_dir: Path | None = None,
        batch_tokens: int = DEFAULT_BATCH_TOKENS,
        queue_length: int = DEFAULT_QUEUE_LENGTH,
        prefill_tokens: int = DEFAULT_PREFILL_TOKENS,
        kept_sequences: int = 0,
        trace_bytes: float = float("inf"),
        on_unwanted: Callable[[int], None] = lambda lane: None,
        row_places: RowPlaces | None = None,
        trusted_lanes: TrustedLanes | None = None,
        rings: Rings | None = None,
    ) -> None:
        cores = threads or len(os.sched_getaffinity(0))
        self.context_tokens = context_tokens
        shapes: list[LaneShape] = []
        if lanes:
            per_lane = -(-sequences // lanes)
            shape = LaneShape.of(context_tokens, batch_tokens, per_lane, kept_sequences, max(1, cores // lanes))
            shapes += [shape] * lanes
        if rings is not None:
            shape = LaneShape.of(
                context_tokens, batch_tokens, rings.per_lane, kept_sequences, rings.threads, LaneKind.RING
            )
            shapes += [shape] * rings.lanes
        self._shapes = tuple(shapes)
        self._rings = rings
        self._ring_contexts: list[RingContext] = []
        self._prefill_tokens = prefill_tokens
        self._lane_context = lane_context or (lambda lane, threads: nullcontext())
        self._trace_dir = trace_dir
        self._lane_trace_bytes = trace_bytes / len(shapes)
        self._queue_length = queue_length
        self._on_unwanted = on_unwanted
        self._row_places = row_places
        self._trusted_lanes = trusted_lanes
        self._handles = ExitStack()
        self.model = self._handles.enter_context(Model(model_path, gpu_layers=gpu_layers, vocabulary_only=lanes == 0))
        self.vocabulary = self.model.vocabulary
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._wake: list[threading.Condition] = []
        self._lanes: list[Lane] = []
        self._threads: list[threading.Thread] = []
        self._waiting: list[Generation] = []  # by their order
        self._requests: dict[str, Generation] = {}
        self._assigned: list[int] = []
        self._accepting = False
        self._stopping = False
        self._rate = RateMeter()

    # --- text ---------------------------------------------------------------------------------------------------------
    def tokenize(self, text: str, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """Raises TokenizeFailed."""
        return self.vocabulary.tokenize(text, add_special=add_special, parse_special=parse_special)

    def detokenize(self, tokens: Sequence[int]) -> str:
        return self.vocabulary.detokenize(tokens)

    def chat_template(self) -> str | None:
        """The Jinja chat template stored in the model file."""
        return self.model.chat_template

    @property
    def metadata(self) -> dict[str, str]:
        return self.model.metadata

    @property
    def vocabulary_size(self) -> int:
        return self.vocabulary.size

    # --- running ------------------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Creates the contexts and starts a thread per lane. Raises ContextNotMade, and then nothing is left behind."""
        try:
            for number in range(len(self._shapes)):
                self._lanes.append(self._open_lane(number))
        except BaseException:
            self._handles.close()
            raise
        self._assigned = [0] * len(self._shapes)
        self._wake = [threading.Condition(self._lock) for _ in self._lanes]
        self._accepting = True
        for number in range(len(self._shapes)):
            thread = threading.Thread(target=self._run_lane, args=(number,), name=f"lane-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _open_lane(self, number: int) -> Lane:
        shape, trace = self._shapes[number], None
        if self._trace_dir is not None:
            path = self.model.path.resolve()
            header = TraceHeader(path, _fingerprint(path), self.vocabulary.size, shape.settings, number)
            trace = self._handles.enter_context(
                TraceWriter(self._trace_dir / f"lane-{number}.jsonl", header, self._lane_trace_bytes)
            )
        return Lane(
            self._open_context(number, shape, trace),
            trace=trace,
            on_left=lambda generation: self._left(number, generation),
            seats=shape.seats,
            prefill_tokens=self._prefill_tokens,
            places=None if self._row_places is None else self._row_places.lane(number),
            trust=None if self._trusted_lanes is None else self._trusted_lanes.lane(number),
            on_lost=partial(self._lost, number) if self._has_local_lanes else None,
        )

    def _open_context(self, number: int, shape: LaneShape, trace: TraceWriter | None) -> DecodingContext:
        if shape.kind is LaneKind.RING:
            assert self._rings is not None
            ring = RingContext(
                self._rings.open_line, shape.settings, self.vocabulary.size,
                patience_seconds=self._rings.patience_seconds, trace=trace,
            )  # fmt: skip
            self._ring_contexts.append(ring)
            return self._handles.enter_context(ring)
        with self._lane_context(number, shape.settings.threads):
            return self._handles.enter_context(Context(self.model, shape.settings))

    def _run_lane(self, number: int) -> None:
        lane, wake = self._lanes[number], self._wake[number]
        while True:
            with wake:
                while lane.size == 0 and not self._stopping:
                    wake.wait()
                if self._stopping:
                    break
            generated = lane.counts.tokens_generated
            try:
                lane.step()
            except Exception as error:
                logger.exception("lane %d: a step failed; its requests end, the lane goes on", number)
                lane.abandon("error", f"internal error: {error}")
            self._rate.add(lane.counts.tokens_generated - generated, time.monotonic())
        lane.abandon("error", STOPPED)

    # --- requests -----------------------------------------------------------------------------------------------------
    def submit(self, request: GenerationRequest, on_event: Callable[[TokenEvent], None]) -> None:
        """Queues a request; its events follow until one has `finish`.

        Raises BadParameter, PromptTooLong, QueueFull, Draining (not started, or stopping).
        """
        check_request(request, self.vocabulary.size, self.context_tokens)
        generation = Generation(request, on_event, self.vocabulary, self.context_tokens)
        with self._lock:
            if not self._accepting:
                raise Draining("the engine is not running or is stopping: send the request to another backbone")
            if request.request_id in self._requests:
                raise BadParameter(f"request {request.request_id} is running already")
            if len(self._waiting) >= self._queue_length:
                raise QueueFull(f"{len(self._waiting)} requests wait already: try again later")
            self._requests[request.request_id] = generation
            insort(self._waiting, generation, key=lambda one: one.order)
            self._assign()

    def cancel(self, request_id: str) -> bool:
        """Ends a request at the next token boundary (finish "cancelled"). False: no such request is running."""
        with self._lock:
            generation = self._requests.get(request_id)
            if generation is None:
                return False
            generation.cancelled = True
            if generation not in self._waiting:
                lane = next((n for n, one in enumerate(self._lanes) if one.is_unwanted(generation)), None)
                if lane is not None:
                    self._on_unwanted(lane)
                return True
            self._waiting.remove(generation)
            del self._requests[request_id]
            if not self._requests:
                self._idle.notify_all()
        generation.tell(generation.last_event("cancelled"))
        return True

    def stats(self) -> EngineStats:
        with self._lock:
            counts = [lane.counts for lane in self._lanes]
            return EngineStats(
                sequences_active=sum(self._assigned),
                sequences_waiting=len(self._waiting),
                sequences_limit=sum(shape.seats for shape in self._shapes),
                tokens_generated=sum(count.tokens_generated for count in counts),
                prompt_tokens=sum(count.prompt_tokens for count in counts),
                reused_tokens=sum(count.reused_tokens for count in counts),
                decodes=sum(count.decodes for count in counts),
                failed_decodes=sum(count.failed_decodes for count in counts),
                tokens_per_second=self._rate.per_second(time.monotonic()),
                lane_sequences=tuple(self._assigned),
            )

    def ring_counts(self) -> RingCounts:
        """The sum over lanes on rings."""
        total = RingCounts()
        for ring in self._ring_contexts:
            total.merge(ring.counts)
        return total

    def stop(self, drain_seconds: float = 0.0) -> None:
        """Takes no new request, lets the running and waiting ones end for `drain_seconds`, then ends the rest.

        Those get finish "error" with the error STOPPED: nobody cancelled them, another attempt may resume them. Frees
        every handle; the engine cannot be started again. Calling it twice is harmless.
        """
        with self._lock:
            self._accepting = False
            self._idle.wait_for(lambda: not self._requests, timeout=drain_seconds)
            self._stopping = True
            abandoned = list(self._waiting)
            self._waiting.clear()
            for condition in self._wake:
                condition.notify_all()
        for generation in abandoned:
            generation.tell(generation.last_event("error", STOPPED))
        for lane in range(len(self._lanes)):
            self._on_unwanted(lane)
        for thread in self._threads:
            thread.join()
        self._handles.close()

    def _assign(self) -> None:
        """Moves waiting requests to lanes of their kind: the one that kept most of the prompt, then the one with the
        fewest sequences. The lock is held."""
        for generation in list(self._waiting):
            kind = self._kind_for(generation.request)
            free = [lane for lane, shape in enumerate(self._shapes) if self._assigned[lane] < shape.seats]
            if not free:
                return
            suitable = [lane for lane in free if self._shapes[lane].kind is kind]
            if not suitable:
                continue
            self._waiting.remove(generation)
            kept = {lane: self._lanes[lane].reusable(generation.pending) for lane in suitable}
            number = min(suitable, key=lambda lane: (-kept[lane], self._assigned[lane], lane))
            self._assigned[number] += 1
            self._lanes[number].add(generation)
            self._wake[number].notify()

    def _kind_for(self, request: GenerationRequest) -> LaneKind:
        low_latency = request.sampling.low_latency
        return kind_for(
            low_latency=low_latency,
            has_local_lanes=self._has_local_lanes,
            rings=self._rings,
            trusted_only=request.trusted_only,
        )

    @property
    def _has_local_lanes(self) -> bool:
        return self._shapes[0].kind is LaneKind.LOCAL

    def _lost(self, number: int, generation: Generation) -> None:
        """A ring that did not come back: a lane of ours reads the request again. Called from the ring's lane."""
        logger.warning("request %s goes on without a ring", generation.request_id)
        request = generation.request
        generation.request = replace(request, sampling=replace(request.sampling, low_latency=False))
        with self._lock:
            self._assigned[number] -= 1
            is_stopping = self._stopping
            if is_stopping:
                self._requests.pop(generation.request_id, None)
            else:
                insort(self._waiting, generation, key=lambda one: one.order)
                self._assign()
        if is_stopping:
            generation.tell(generation.last_event("error", STOPPED))

    def _left(self, number: int, generation: Generation) -> None:
        with self._lock:
            self._assigned[number] -= 1
            self._requests.pop(generation.request_id, None)
            if not self._stopping:
                self._assign()
            if not self._requests:
                self._idle.notify_all()


def _fingerprint(path: Path) -> str:
    try:
        return open_index(path).fingerprint
    except DenseModel:
        return ""
