"""A lane: one llama.cpp context that generates for several requests at once (continuous batching).

`step()` is the unit of work: at most one chunk of one prompt, then one token for every sequence that generates. The
two go through separate decodes: hybrid models (Gated DeltaNet) need sequences of equal length in one pass, and a long
prompt must not hold up the others for more than one chunk. Requests join and leave between steps.

Sequence numbers: the generating sequences hold 0 .. n-1 without a gap, in the order of `_active`; the one prompt that
is being read holds a number above. llama.cpp decodes sequences in one pass only if their numbers follow each other, so
the last one moves into a gap when a sequence leaves. Knows tokens and contexts; nothing of threads, claims or sockets.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from inference.generation import Finish, Generation, TokenEvent
from inference.llama import Batch, Context
from inference.trace import TraceWriter

logger = logging.getLogger(__name__)


@dataclass
class LaneCounts:
    """What a lane did so far; read by other threads, written by its own."""

    decodes: int = 0
    tokens_generated: int = 0
    prompt_tokens: int = 0
    failed_decodes: int = 0


class Lane:
    """Drives one context. Everything but `add`, `is_unwanted`, `size` and `counts` belongs to one thread.

    on_left(generation): called once for every request that ends, after its last event.
    """

    def __init__(
        self,
        context: Context,
        *,
        trace: TraceWriter | None = None,
        on_left: Callable[[Generation], None] = lambda generation: None,
    ) -> None:
        settings = context.settings
        assert settings.batch_tokens >= settings.sequences, "one token of every sequence must fit into a batch"
        self.context = context
        self.counts = LaneCounts()
        self._trace = trace
        self._on_left = on_left
        self._inbox: deque[Generation] = deque()
        self._prompts: deque[Generation] = deque()
        self._prompt_slot = -1
        self._active: list[Generation] = []
        self._prompt_batch = Batch(settings.batch_tokens)
        self._token_batch = Batch(settings.sequences)
        self._token_batch.sequences[:] = np.arange(settings.sequences)
        self._token_batch.wants_logits[:] = 1

    @property
    def size(self) -> int:
        """Requests in this lane, prompts still to be read included."""
        return len(self._inbox) + len(self._prompts) + len(self._active)

    def add(self, generation: Generation) -> None:
        """Hands a request to the lane; from any thread. The caller keeps `size` within the context's sequences."""
        self._inbox.append(generation)

    def is_unwanted(self, generation: Generation) -> bool:
        """Whether it runs here, and it and all others here are cancelled; from any thread, so a hint only."""
        everyone = [*self._active, *self._prompts, *self._inbox]
        return generation in everyone and all(one.cancelled for one in everyone)

    def step(self) -> bool:
        """One chunk of one prompt, then one token of every active sequence. False: there was nothing to do."""
        self._take_inbox()
        self._drop_cancelled()
        worked = self._read_prompt()
        return self._generate() or worked

    def abandon(self, finish: Finish, error: str = "") -> None:
        """Ends every request now and empties the context; the lane stays usable."""
        self._take_inbox()
        everyone = [*self._active, *self._prompts]
        self._active.clear()
        self._prompts.clear()
        self._prompt_slot = -1
        self.context.clear()
        if self._trace:
            self._trace.clear()
        for generation in everyone:
            self._leave(generation, generation.last_event(finish, error))

    def _take_inbox(self) -> None:
        while self._inbox:
            self._prompts.append(self._inbox.popleft())

    # --- prompts ------------------------------------------------------------------------------------------------------
    def _read_prompt(self) -> bool:
        if not self._prompts:
            return False
        generation = self._prompts[0]
        if self._prompt_slot < 0 and not self._begin(generation):
            return True
        chunk = self._next_chunk(generation)
        whole = generation.position + len(chunk) == len(generation.pending)
        self._fill_chunk(generation, chunk, whole)
        code = self._decode(self._prompt_batch, rows=1 if whole else 0)
        if code != 0:
            self._end_prompt(generation, generation.last_event("error", _reason(code)))
            return True
        generation.position += len(chunk)
        self.counts.prompt_tokens += len(chunk)
        if whole:
            self._answer(generation, row=len(chunk) - 1)
        return True

    def _next_chunk(self, generation: Generation) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        """As much as fits into a batch. In a lane of one sequence every batch is the same whenever a request is asked,
        and stays so when it is resumed: first the prompt's chunks, then token by token what had been generated."""
        chunk = generation.pending[generation.position :][: self._prompt_batch.capacity]
        if self.context.settings.sequences > 1 or not generation.request.resumed:
            return chunk
        left = len(generation.request.prompt) - generation.position
        return chunk[: left if left > 0 else 1]

    def _begin(self, generation: Generation) -> bool:
        """Gives the first waiting prompt a sequence number; False if its answer turns out to be complete already."""
        self._prompt_slot = len(self._active)
        finish = generation.already_complete()
        if finish is not None:
            self._end_prompt(generation, generation.last_event(finish))
            return False
        generation.open_sampler()
        return True

    def _fill_chunk(
        self, generation: Generation, chunk: np.ndarray[tuple[int], np.dtype[np.int32]], whole: bool
    ) -> None:
        batch, size = self._prompt_batch, len(chunk)
        batch.size = size
        batch.tokens[:size] = chunk
        batch.positions[:size] = np.arange(generation.position, generation.position + size)
        batch.sequences[:size] = self._prompt_slot
        batch.wants_logits[:size] = 0
        batch.wants_logits[size - 1] = whole

    def _answer(self, generation: Generation, row: int) -> None:
        """The prompt is read: its last logits give the first token, and the sequence joins the others."""
        event = generation.sample(self.context, row)
        self.counts.tokens_generated += 1
        if event.finish is not None:
            self._end_prompt(generation, event)
            return
        target = len(self._active)
        if self._prompt_slot != target:  # others left while the prompt was read
            self._move(self._prompt_slot, target)
        self._prompts.popleft()
        self._prompt_slot = -1
        self._active.append(generation)
        generation.tell(event)

    def _end_prompt(self, generation: Generation, event: TokenEvent) -> None:
        self._remove(self._prompt_slot)
        self._prompt_slot = -1
        self._prompts.popleft()
        self._leave(generation, event)

    # --- generating ---------------------------------------------------------------------------------------------------
    def _generate(self) -> bool:
        active, batch = self._active, self._token_batch
        if not active:
            return False
        size = batch.size = len(active)
        batch.tokens[:size] = [generation.next_token for generation in active]
        batch.positions[:size] = [generation.position for generation in active]
        code = self._decode(batch, rows=size)
        if code != 0:
            self._fail_active(_reason(code))
            return True
        self.counts.tokens_generated += size
        left: list[tuple[Generation, TokenEvent]] = []
        for row, generation in enumerate(active):
            generation.position += 1
            event = generation.sample(self.context, row)
            if event.finish is None:
                generation.tell(event)
            else:
                left.append((generation, event))
        for generation, event in left:
            self._end_active(generation, event)
        return True

    def _end_active(self, generation: Generation, event: TokenEvent) -> None:
        """Removes a sequence; the last one takes its number."""
        slot, last = self._active.index(generation), len(self._active) - 1
        self._remove(slot)
        if slot != last:
            self._move(last, slot)
            self._active[slot] = self._active[last]
        self._active.pop()
        self._leave(generation, event)

    def _fail_active(self, reason: str) -> None:
        failed, self._active = self._active, []
        for slot in range(len(failed)):
            self._remove(slot)
        for generation in failed:
            self._leave(generation, generation.last_event("error", reason))

    def _drop_cancelled(self) -> None:
        for generation in [generation for generation in self._active if generation.cancelled]:
            self._end_active(generation, generation.last_event("cancelled"))
        if self._prompt_slot >= 0 and self._prompts[0].cancelled:
            self._end_prompt(self._prompts[0], self._prompts[0].last_event("cancelled"))
        for generation in [generation for generation in self._prompts if generation.cancelled]:
            if self._prompt_slot < 0 or generation is not self._prompts[0]:
                self._prompts.remove(generation)
                self._leave(generation, generation.last_event("cancelled"))

    # --- the context, traced ------------------------------------------------------------------------------------------
    def _decode(self, batch: Batch, rows: int) -> int:
        code = self.context.decode(batch)
        self.counts.decodes += 1
        if code != 0:
            self.counts.failed_decodes += 1
            logger.error("llama_decode of %d tokens failed with code %d", batch.size, code)
        if self._trace:
            self._trace.decode(batch, code, self.context.logits(rows) if code == 0 and rows else None)
        return code

    def _remove(self, sequence: int) -> None:
        self.context.remove(sequence)
        if self._trace:
            self._trace.remove(sequence)

    def _move(self, source: int, target: int) -> None:
        self.context.move(source, target)
        if self._trace:
            self._trace.move(source, target)

    def _leave(self, generation: Generation, event: TokenEvent) -> None:
        generation.close()
        generation.tell(event)
        self._on_left(generation)


def _reason(code: int) -> str:
    """What a result code of llama_decode means (llama.h)."""
    meanings = {1: "no room in the context's memory", 2: "aborted", -1: "invalid batch"}
    return f"llama_decode failed: {meanings.get(code, 'computation failed')} (code {code})"
