"""What every living sequence of a context has read: enough to read it again where the memory was lost. Pure.

It follows the operations of `inference.llama.Context`. Recurrent state cannot be rewound, nor fetched from a stage that
is gone, but every sequence is a function of its tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int32s = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Chunk:
    """Tokens to be read in one batch: (n,) int32 each. Sequences come one after another, positions rise in each."""

    tokens: Int32s
    positions: Int32s
    sequences: Int32s


class Journal:
    """Tokens by sequence number; a sequence that read nothing is not there."""

    def __init__(self) -> None:
        self._tokens: dict[int, list[int]] = {}

    @property
    def sequences(self) -> dict[int, tuple[int, ...]]:
        """Sequence number -> its tokens."""
        return {sequence: tuple(tokens) for sequence, tokens in self._tokens.items()}

    @property
    def token_count(self) -> int:
        return sum(map(len, self._tokens.values()))

    def decoded(self, tokens: Int32s, positions: Int32s, sequences: Int32s) -> None:
        """A batch was decoded with code 0; arrays (n,) in the order of the batch."""
        for token, position, sequence in zip(tokens.tolist(), positions.tolist(), sequences.tolist(), strict=True):
            read = self._tokens.setdefault(sequence, [])
            assert position == len(read), f"sequence {sequence} has read {len(read)} tokens, not {position}"
            read.append(token)

    def remove(self, sequence: int) -> None:
        self._tokens.pop(sequence, None)

    def move(self, source: int, target: int) -> None:
        self.copy(source, target)
        self.remove(source)

    def copy(self, source: int, target: int) -> None:
        """The target is free: what is there is a sequence that was never removed."""
        if source in self._tokens:
            assert target not in self._tokens, f"sequence {target} is not free"
            self._tokens[target] = list(self._tokens[source])

    def clear(self) -> None:
        self._tokens.clear()

    def chunks(self, batch_tokens: int) -> Iterator[Chunk]:
        """Every living sequence from its beginning, by number, in batches of at most so many tokens."""
        everything = [
            (token, position, sequence)
            for sequence in sorted(self._tokens)
            for position, token in enumerate(self._tokens[sequence])
        ]
        for start in range(0, len(everything), batch_tokens):
            part = np.array(everything[start : start + batch_tokens], np.int32)
            yield Chunk(part[:, 0].copy(), part[:, 1].copy(), part[:, 2].copy())
