"""Which prompts of a lane are read next: long and short ones share, none waits for ever, the important come first.

Pure order over requests; knows nothing of contexts or batches.
"""

from __future__ import annotations

from collections.abc import Iterator

from inference.generation import Generation


class PromptQueue:
    """Requests whose prompts are not read to their end. A prompt that has a number (`slot`) is begun."""

    def __init__(self) -> None:
        self._all: list[Generation] = []
        self._turn = 0

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Generation]:
        return iter(list(self._all))

    def add(self, generation: Generation) -> None:
        self._all.append(generation)

    def remove(self, generation: Generation) -> None:
        self._all.remove(generation)

    def clear(self) -> None:
        self._all.clear()

    @property
    def begun(self) -> list[Generation]:
        return [generation for generation in self._all if generation.slot >= 0]

    def in_order(self) -> list[Generation]:
        """Everybody, the next one first.

        Every other turn belongs to the one that came first (`Generation.order`: arrival, corrected by priority), so a
        long prompt gets at least every second chunk; the others to the one of which least was read, so a short prompt
        waits for one chunk of a long one, not for all of it.
        """
        self._turn += 1
        if self._turn % 2:
            return sorted(self._all, key=lambda one: one.order)
        return sorted(self._all, key=lambda one: (one.position, one.order))
