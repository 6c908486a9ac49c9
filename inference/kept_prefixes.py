"""States of sequences that are kept, so that a request which begins with the same tokens need not read them again.

The state of a hybrid model (Gated DeltaNet) cannot be rewound: a state that has seen n tokens serves only prompts that
begin with exactly those n tokens. So two kinds of states are worth keeping: a finished answer (the next turn of a chat
begins with it), and the beginning that two prompts had in common (a system prompt), taken while the second is read.

Knows tokens and numbers of sequences; nothing of contexts. Changed by one thread, `longest` may be read by others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

Tokens = npt.NDArray[np.int32]

# Copying a state costs about as much as reading a few dozen tokens.
LEAST_TOKENS = 32
PROMPTS_REMEMBERED = 16


@dataclass(frozen=True, eq=False)
class Kept:
    """A state that has seen `tokens` (n,), under sequence number `slot`; is_proven: some prompt went on from it."""

    slot: int
    tokens: Tokens
    is_proven: bool = False


class KeptPrefixes:
    """`slots`: the sequence numbers that may hold kept states; given up is the oldest that nobody used, or else the
    least recently used one."""

    def __init__(self, slots: Sequence[int]) -> None:
        self._free = list(slots)
        self._kept: tuple[Kept, ...] = ()  # the least recently used first; replaced, never changed
        self._seen: deque[Tokens] = deque(maxlen=PROMPTS_REMEMBERED)

    @property
    def is_on(self) -> bool:
        return bool(self._free or self._kept)

    def longest(self, prompt: Tokens) -> Kept | None:
        """The longest kept state with which the prompt begins; at least one token of the prompt is left to read."""
        fitting = [one for one in self._kept if len(one.tokens) < len(prompt) and begins_with(prompt, one.tokens)]
        return max(fitting, key=lambda one: len(one.tokens), default=None)

    def used(self, kept: Kept) -> None:
        self._kept = (*(one for one in self._kept if one is not kept), replace(kept, is_proven=True))

    def wants(self, tokens: Tokens) -> bool:
        """Whether a state of these tokens is worth its place: long enough, and not held already."""
        is_held = any(np.array_equal(one.tokens, tokens) for one in self._kept)
        return self.is_on and len(tokens) >= LEAST_TOKENS and not is_held

    def place(self, tokens: Tokens) -> tuple[int, bool]:
        """(the number for a new state, whether an old one there must be removed first)."""
        if self._free:
            slot, is_taken = self._free.pop(), False
        else:
            # Every answer leaves a state: those that nobody went on from must not push out a system prompt.
            given_up = next((one for one in self._kept if not one.is_proven), self._kept[0])
            slot, is_taken = given_up.slot, True
            self._kept = tuple(one for one in self._kept if one is not given_up)
        self._kept = (*self._kept, Kept(slot, tokens))
        return slot, is_taken

    def common_start(self, prompt: Tokens) -> int:
        """Tokens in common with a prompt seen lately (0: too few, or held already); remembers this one."""
        found = max((common_length(prompt, seen) for seen in self._seen), default=0)
        self._seen.append(prompt)
        found = min(found, len(prompt) - 1)
        return found if self.wants(prompt[:found]) else 0

    def clear(self) -> None:
        """The context was emptied."""
        self._free += [one.slot for one in self._kept]
        self._kept = ()


def begins_with(tokens: Tokens, start: Tokens) -> bool:
    return len(tokens) >= len(start) and np.array_equal(tokens[: len(start)], start)


def common_length(one: Tokens, other: Tokens) -> int:
    """How many tokens both begin with."""
    size = min(len(one), len(other))
    different = np.flatnonzero(one[:size] != other[:size])
    return int(different[0]) if len(different) else size
