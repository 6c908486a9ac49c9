"""What is really held at every moment, and what was measured of it."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from market.coverage import Replicas


@dataclass
class CoverageLog:
    """held (layers, experts): verified replicas of devices that are there, whatever the market believes.

    A gap is the time in which nobody holds an expert. Gaps and samples count from `warm_up` seconds on.
    """

    shape: tuple[int, int]
    warm_up: float
    longest_gap: float = 0.0
    gaps: int = 0
    gap_seconds: float = 0.0
    shares: list[float] = field(default_factory=list)
    covered: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.held: NDArray[np.int32] = np.zeros(self.shape, np.int32)
        self._empty_since = np.zeros(self.shape)

    def take(self, now: float, row: int, first: int, last: int) -> None:
        """A replica of the range goes live."""
        part = self.held[row, first:last]
        self._close(now, self._empty_since[row, first:last][part == 0])
        part += 1

    def drop(self, now: float, row: int, first: int, last: int) -> None:
        """A live replica of the range is gone."""
        part = self.held[row, first:last]
        part -= 1
        self._empty_since[row, first:last][part == 0] = now

    def finish(self, now: float) -> None:
        """Gaps that are still open count up to the end."""
        self._close(now, self._empty_since[self.held == 0])

    def _close(self, now: float, since: NDArray[np.float64]) -> None:
        lengths = now - np.maximum(since, self.warm_up)
        lengths = lengths[lengths > 0]
        if lengths.size:
            self.longest_gap = max(self.longest_gap, float(lengths.max()))
            self.gaps += lengths.size
            self.gap_seconds += float(lengths.sum())

    def sample(self, now: float, targets: Replicas) -> None:
        if now >= self.warm_up:
            self.shares.append(float((self.held >= targets).mean()))
            self.covered.append(float((self.held > 0).mean()))
