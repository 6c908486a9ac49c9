"""What the played router asks for: skewed, slowly drifting, observed by counting."""

import numpy as np
from numpy.typing import NDArray

from market.builds import BuildDescription

TOKENS_PER_SECOND = 200.0
SKEW = 1.0
DRIFT = 0.05


class Traffic:
    """rows_per_hour: (layers, experts) float64, what is really asked for; every layer gets the same number of rows."""

    def __init__(self, build: BuildDescription, random: np.random.Generator) -> None:
        self._random = random
        self._logarithms = random.normal(0.0, SKEW, (len(build.layers), build.experts_per_layer))
        self._per_layer = TOKENS_PER_SECOND * 3600 * build.experts_used
        self.rows_per_hour = self._rows()

    def _rows(self) -> NDArray[np.float64]:
        weights = np.exp(self._logarithms)
        rows: NDArray[np.float64] = self._per_layer * weights / weights.sum(axis=1, keepdims=True)
        return rows

    def observed(self, seconds: float) -> NDArray[np.int64]:
        """Counts of a window (layers, experts); then the taste of the users drifts a little."""
        counts = self._random.poisson(self.rows_per_hour * seconds / 3600)
        self._logarithms += self._random.normal(0.0, DRIFT, self._logarithms.shape)
        self.rows_per_hour = self._rows()
        return counts
