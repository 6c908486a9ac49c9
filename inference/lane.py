"""A lane: one context that generates for several requests at once (continuous batching).

`step()` is the unit of work: at most one decode of prompts, then one token for every sequence that generates. The two
go through separate decodes: hybrid models (Gated DeltaNet) need sequences of equal length in one pass, and a long
prompt must not hold up the others for more than one chunk. Requests join and leave between steps.

Sequence numbers: the generating sequences hold 0 .. n-1 without a gap, in the order of `_active`; prompts that are
being read hold numbers above, kept states (`KeptPrefixes`) those above all seats. llama.cpp decodes sequences in one
pass only if their numbers follow each other, so the last one moves into a gap when a sequence leaves. Every seat has
memory for the longest sequence (see `Context`), so who has a seat can never run out of it: admission by memory is
admission by seats. Knows tokens and contexts; nothing of threads, claims or sockets.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inference.decoding import RING_LOST, DecodingContext
from inference.generation import Finish, Generation, TokenEvent
from inference.kept_prefixes import KeptPrefixes
from inference.llama import Batch
from inference.prompt_queue import PromptQueue
from inference.row_places import LanePlaces
from inference.trace import TraceWriter
from inference.trusted_lanes import LaneTrust

logger = logging.getLogger(__name__)

NO_ROOM = 1  # llama_decode: the context has no room for the batch and is as before


@dataclass
class LaneCounts:
    """What a lane did so far; read by other threads, written by its own. reused_tokens: of prompts, not read again."""

    decodes: int = 0
    tokens_generated: int = 0
    prompt_tokens: int = 0
    reused_tokens: int = 0
    failed_decodes: int = 0


class Lane:
    """Drives one context. Everything but `add`, `is_unwanted`, `reusable`, `size` and `counts` belongs to one thread.

    on_left(generation): called once for every request that ends, after its last event. seats: requests at once, fewer
    than the context's sequences where the rest keep states of ended ones; None: all. prefill_tokens: most prompt tokens
    of one step while others generate, None: a whole batch. on_lost(generation): takes over what no ring of stages could
    go on with, instead of an end with an error; it is to be read again from its beginning.
    """

    def __init__(
        self,
        context: DecodingContext,
        *,
        trace: TraceWriter | None = None,
        on_left: Callable[[Generation], None] = lambda generation: None,
        seats: int | None = None,
        prefill_tokens: int | None = None,
        places: LanePlaces | None = None,
        trust: LaneTrust | None = None,
        on_lost: Callable[[Generation], None] | None = None,
    ) -> None:
        settings = context.settings
        self.seats = settings.sequences if seats is None else seats
        assert settings.batch_tokens >= self.seats, "one token of every sequence must fit into a batch"
        self.context = context
        self.counts = LaneCounts()
        self._trace = trace
        self._on_left = on_left
        self._on_lost = on_lost
        self._places = places
        self._trust = trust or LaneTrust()
        self._inbox: deque[Generation] = deque()
        self._prompts = PromptQueue()
        self._kept = KeptPrefixes(range(self.seats, settings.sequences))
        self._active: list[Generation] = []
        self._prefill_tokens = min(prefill_tokens or settings.batch_tokens, settings.batch_tokens)
        self._prompt_batch = Batch(settings.batch_tokens)
        self._token_batch = Batch(self.seats)
        self._token_batch.sequences[:] = np.arange(self.seats)
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

    def reusable(self, prompt: npt.NDArray[np.int32]) -> int:
        """Tokens of the prompt that this lane would not read again; from any thread, so a hint only."""
        kept = self._kept.longest(prompt)
        return 0 if kept is None else len(kept.tokens)

    def step(self) -> bool:
        """One decode of prompts, then one token of every active sequence. False: there was nothing to do."""
        self._take_inbox()
        self._drop_cancelled()
        worked = self._read_prompts()
        return self._generate() or worked

    def abandon(self, finish: Finish, error: str = "") -> None:
        """Ends every request now and empties the context; the lane stays usable."""
        self._take_inbox()
        everyone = [*self._active, *self._prompts]
        self._active.clear()
        self._prompts.clear()
        self._kept.clear()
        self.context.clear()
        if self._trace:
            self._trace.clear()
        for generation in everyone:
            self._leave(generation, generation.last_event(finish, error))

    def _take_inbox(self) -> None:
        while self._inbox:
            self._prompts.add(self._inbox.popleft())

    # --- prompts ------------------------------------------------------------------------------------------------------
    def _read_prompts(self) -> bool:
        """One chunk of one prompt; short ones that fit into the same budget are read with it."""
        if not self._prompts:
            return False
        budget = self._prefill_tokens if self._active else self._prompt_batch.capacity
        chunks: list[tuple[Generation, int]] = []
        for generation in self._prompts.in_order():
            if budget <= 0 or (generation.slot < 0 and not self._begin(generation)):
                continue
            if generation.position == 0:
                self._go_on_from_kept(generation)
            wanted = self._chunk_size(generation)
            if not chunks or wanted <= budget:
                chunks.append((generation, min(wanted, budget)))
                budget -= wanted
        if chunks:
            self._read(sorted(chunks, key=lambda chunk: chunk[0].slot))
        return True

    def _read(self, chunks: list[tuple[Generation, int]]) -> None:
        """chunks: (request, tokens of it to read), in the order of their numbers."""
        ends = self._fill_chunks(chunks)
        whole = [generation.position + size == len(generation.pending) for generation, size in chunks]
        self._trust.required = any(generation.request.trusted_only for generation, _ in chunks)
        code = self._decode(self._prompt_batch, rows=sum(whole))
        if code == NO_ROOM and len(chunks) > 1:  # nothing was read: whose fault it is shows when each is read alone
            for chunk in chunks:
                self._read([chunk])
            return
        if code != 0:
            for generation, _ in chunks:
                self._fail_prompt(generation, code)
            return
        for (generation, size), end, is_whole in zip(chunks, ends, whole, strict=True):
            generation.position += size
            self.counts.prompt_tokens += size
            if generation.position == generation.keep_at:
                self._keep(generation)
            if is_whole:
                self._answer(generation, row=end - 1)

    def _chunk_size(self, generation: Generation) -> int:
        """Up to the next place where its state is kept, or to its end. In a lane of one sequence every batch is the
        same whenever a request is asked, and stays so when it is resumed: first the prompt's chunks, then token by
        token what had been generated."""
        left = len(generation.pending) - generation.position
        if generation.position < generation.keep_at:
            left = generation.keep_at - generation.position
        if self.context.settings.sequences == 1 and generation.request.resumed:
            of_prompt = len(generation.request.prompt) - generation.position
            left = of_prompt if of_prompt > 0 else 1
        return left

    def _begin(self, generation: Generation) -> bool:
        """Gives a prompt a sequence number; False if there is none now, or its answer turns out to be complete.

        Beside a prompt that is begun one number stays free: there an occupant goes when the other one must move.
        """
        begun = self._prompts.begun
        if begun and len(self._active) + len(begun) + 1 >= self.seats:
            return False
        finish = generation.already_complete()
        if finish is not None:
            self._end_prompt(generation, generation.last_event(finish))
            return False
        generation.slot = self._free_slot()
        generation.open_sampler()
        if self._kept.is_on:
            generation.keep_at = self._kept.common_start(generation.pending)
        return True

    def _go_on_from_kept(self, generation: Generation) -> None:
        """Where nothing of the prompt is read yet: looked for now, because the one before it may have left a state."""
        kept = self._kept.longest(generation.pending)
        if kept is not None:
            self._kept.used(kept)
            self._copy(kept.slot, generation.slot)
            generation.position = len(kept.tokens)
            self.counts.reused_tokens += generation.position

    def _free_slot(self) -> int:
        """The lowest number above the generating sequences that no prompt has."""
        taken = {generation.slot for generation in self._prompts.begun}
        return next(slot for slot in range(len(self._active), self.seats) if slot not in taken)

    def _fill_chunks(self, chunks: list[tuple[Generation, int]]) -> list[int]:
        """Writes the batch; the end of each chunk in it."""
        batch, start, ends = self._prompt_batch, 0, []
        for generation, size in chunks:
            end, position = start + size, generation.position
            batch.tokens[start:end] = generation.pending[position : position + size]
            batch.positions[start:end] = np.arange(position, position + size)
            batch.sequences[start:end] = generation.slot
            batch.wants_logits[start:end] = 0
            batch.wants_logits[end - 1] = position + size == len(generation.pending)
            ends.append(end)
            start = end
        batch.size = start
        return ends

    def _answer(self, generation: Generation, row: int) -> None:
        """The prompt is read: its last logits give the first token, and the sequence joins the others."""
        event = generation.sample(self.context, row)
        self.counts.tokens_generated += 1
        if event.finish is not None:
            self._end_prompt(generation, event)
            return
        target = len(self._active)
        if generation.slot != target:
            for other in self._prompts.begun:
                if other.slot == target:
                    other.slot = self._free_slot()
                    self._move(target, other.slot)
            self._move(generation.slot, target)
        self._prompts.remove(generation)
        generation.slot = -1
        self._active.append(generation)
        generation.tell(event)

    def _end_prompt(self, generation: Generation, event: TokenEvent) -> None:
        self._forget_prompt(generation)
        self._leave(generation, event)

    def _fail_prompt(self, generation: Generation, code: int) -> None:
        self._forget_prompt(generation)
        self._fail(generation, code)

    def _forget_prompt(self, generation: Generation) -> None:
        if generation.slot >= 0:
            self._remove(generation.slot)
            generation.slot = -1
        self._prompts.remove(generation)

    def _keep(self, generation: Generation, slot: int | None = None) -> None:
        """Copies the state of a sequence, so that a prompt which begins with the same tokens can go on from there."""
        if not self._kept.is_on:
            return
        tokens = generation.fed_tokens()
        if self._kept.wants(tokens):
            place, is_taken = self._kept.place(tokens)
            if is_taken:
                self._remove(place)
            self._copy(generation.slot if slot is None else slot, place)

    # --- generating ---------------------------------------------------------------------------------------------------
    def _generate(self) -> bool:
        active, batch = self._active, self._token_batch
        if not active:
            return False
        size = batch.size = len(active)
        batch.tokens[:size] = [generation.next_token for generation in active]
        batch.positions[:size] = [generation.position for generation in active]
        counted = self._places if any(one.request.sampling.places for one in active) else None
        if counted is not None:
            counted.begin()
        self._trust.required = any(one.request.trusted_only for one in active)
        code = self._decode(batch, rows=size)
        places = None if counted is None else counted.take(size)
        if code != 0:
            self._fail_active(code)
            return True
        self.counts.tokens_generated += size
        left: list[tuple[Generation, TokenEvent]] = []
        for row, generation in enumerate(active):
            generation.position += 1
            where = places[row] if places is not None and generation.request.sampling.places else None
            event = generation.sample(self.context, row, where)
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
        if event.finish in ("stop", "length"):
            self._keep(generation, slot)
        self._remove(slot)
        if slot != last:
            self._move(last, slot)
            self._active[slot] = self._active[last]
        self._active.pop()
        self._leave(generation, event)

    def _fail_active(self, code: int) -> None:
        failed, self._active = self._active, []
        for slot in range(len(failed)):
            self._remove(slot)
        for generation in failed:
            self._fail(generation, code)

    def _fail(self, generation: Generation, code: int) -> None:
        """Ends a request whose decode failed, or gives it to who can go on with it."""
        if code == RING_LOST and self._on_lost is not None and not generation.cancelled:
            generation.begin_again()
            self._on_lost(generation)
        else:
            self._leave(generation, generation.last_event("error", _reason(code)))

    def _drop_cancelled(self) -> None:
        for generation in [generation for generation in self._active if generation.cancelled]:
            self._end_active(generation, generation.last_event("cancelled"))
        for generation in [generation for generation in self._prompts if generation.cancelled]:
            self._end_prompt(generation, generation.last_event("cancelled"))

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

    def _copy(self, source: int, target: int) -> None:
        self.context.copy(source, target)
        if self._trace:
            self._trace.copy(source, target)

    def _leave(self, generation: Generation, event: TokenEvent) -> None:
        generation.close()
        generation.tell(event)
        self._on_left(generation)


def _reason(code: int) -> str:
    """What a result code of a decode means (llama.h)."""
    if code == RING_LOST:
        return "no ring of stages could compute it: a stage is gone and nobody replaced it in time"
    meanings = {NO_ROOM: "no room in the context's memory", 2: "aborted", -1: "invalid batch"}
    return f"llama_decode failed: {meanings.get(code, 'computation failed')} (code {code})"
