"""What a lane needs of whatever decodes its batches: a llama.cpp context of this process, or a ring of stages.

`inference.llama.Context` and `inference.ring.context.RingContext` both have it, so that lanes, sampling and traces are
the same for both.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from inference.llama import Batch, ContextSettings, SamplerChain

# A result code of our own, far from llama_decode's: the batch could not be computed, no ring of stages came about.
RING_LOST = -100


class DecodingContext(Protocol):
    """The memory of `settings.sequences` sequences and the means to decode batches; one thread at a time."""

    @property
    def settings(self) -> ContextSettings: ...

    @property
    def vocabulary_size(self) -> int: ...

    def decode(self, batch: Batch) -> int:
        """0, or the code of llama_decode (1 no room, 2 aborted, negative: failed), or RING_LOST."""
        ...

    def logits(self, rows: int) -> npt.NDArray[np.float32]:
        """The first `rows` output rows of the last decode, (rows, n_vocab) float32, valid until the next."""
        ...

    def logits_of(self, row: int) -> npt.NDArray[np.float32]:
        """The logits of entry `row` of the last batch, (n_vocab,) float32, valid until the next."""
        ...

    def choose(self, chain: SamplerChain, row: int) -> int:
        """A token from the logits of entry `row` of the last batch, accepted by the chain."""
        ...

    def remove(self, sequence: int) -> None:
        """Forgets one sequence whole."""
        ...

    def move(self, source: int, target: int) -> None:
        """Gives sequence `source` the free number `target`."""
        ...

    def copy(self, source: int, target: int) -> None:
        """Gives the free number `target` the whole state of `source`."""
        ...

    def clear(self) -> None:
        """Forgets every sequence."""
        ...
