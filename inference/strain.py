"""How well workers serve the experts that they hold: what was missed, and who is slow, as one number per expert.

The market raises price and target where the number is high, so that other devices take a replica there. Pure.
"""

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from inference.replica_table import Replica

FloatArray = npt.NDArray[np.float64]

# An owner is slow from twice the median time of all owners on, and as bad as absent at four times.
SLOW_FROM, SLOW_TO = 2.0, 4.0
LEAST_ANSWERS = 8
LEAST_ROWS = 16


def strain_of(
    demand: npt.NDArray[np.uint64],
    missed: npt.NDArray[np.uint64],
    replicas: Sequence[Replica],
    times: Mapping[Hashable, tuple[float, float, int]],
) -> FloatArray:
    """(layers, experts) from 0 to 1: the greater of the missed share of the rows and the slowness of the best replica.

    demand, missed (layers, experts): rows of the window, and those of them that a worker held and did not compute in
    time; times: session -> (smoothed seconds, mean deviation, answers). Experts that few rows asked for, and nobody
    holds, are not strained: that they are wanted says the demand.
    """
    share = np.where(demand >= LEAST_ROWS, missed / np.maximum(demand, 1), 0.0)
    return np.maximum(share, _slowness(demand.shape, replicas, times))


def _slowness(
    shape: tuple[int, ...], replicas: Sequence[Replica], times: Mapping[Hashable, tuple[float, float, int]]
) -> FloatArray:
    seconds = {session: one[0] for session, one in times.items() if one[2] >= LEAST_ANSWERS}
    if not seconds:
        return np.zeros(shape)
    median = float(np.median(list(seconds.values())))
    best = np.full(shape, np.inf)
    for replica in replicas:
        ratio = seconds.get(replica.session, median) / median
        slow = min(1.0, max(0.0, (ratio - SLOW_FROM) / (SLOW_TO - SLOW_FROM)))
        held = best[replica.layer, replica.first : replica.last]
        np.minimum(held, slow, out=held)
    return np.where(np.isfinite(best), best, 0.0)
