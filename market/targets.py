"""How many replicas of each expert are wanted: the policy's target, and more of what is in demand. Pure numpy.

All targets together stay below a share of the bytes that devices hold, so there is always room to heal. Extra replicas
go to blocks of EXTRA_BLOCK neighbours rather than to single experts: a device holds runs, and a target that changed
from expert to expert would cut every run into crumbs.
"""

import numpy as np
from numpy.typing import NDArray

from market.coverage import Replicas
from market.policy import Policy

EXTRA_BLOCK = 8
# A target by demand stays this far below the maximum, so that a hot expert has spare copies when one of its own leaves.
SPARE_REPLICAS = 2


def target_replicas(
    rows_per_hour: NDArray[np.float64], expert_bytes: NDArray[np.int64], replicas: Replicas, policy: Policy
) -> Replicas:
    """Replicas wanted of each expert: (layers, experts) uint16, between the policy's target and its maximum.

    rows_per_hour (layers, experts); expert_bytes (layers,); replicas (layers, experts): what is claimed now.
    Extras are dealt one by one, each to the block whose demand per replica is greatest (D'Hondt's divisors), ties to
    the lower layer, then the lower expert, until the next one would not fit.
    """
    targets = np.full(replicas.shape, policy.target_replicas, np.uint16)
    sizes = expert_bytes.astype(np.int64)[:, None]
    held_bytes = int((replicas.astype(np.int64) * sizes).sum())
    free = held_bytes * policy.target_bytes_percent // 100 - int((targets.astype(np.int64) * sizes).sum())
    steps = policy.maximum_replicas - policy.target_replicas - SPARE_REPLICAS
    if free <= 0 or steps <= 0:
        return targets
    starts = np.arange(0, replicas.shape[1], EXTRA_BLOCK)
    lengths = np.diff(np.append(starts, replicas.shape[1]))
    demand = np.add.reduceat(rows_per_hour, starts, axis=1) / lengths
    extras = _deal(demand, sizes * lengths, free, policy.target_replicas, steps)
    targets += np.repeat(extras, lengths, axis=1)
    return targets


def _deal(
    demand: NDArray[np.float64], sizes: NDArray[np.int64], free_bytes: int, target: int, steps: int
) -> NDArray[np.uint16]:
    """Extra replicas per block: (layers, blocks), at most `steps` each. demand, sizes: per block."""
    divisors = target + 1.0 + np.arange(steps)
    quotients = (demand.ravel()[:, None] / divisors).ravel()
    # Stable: equal quotients keep the order of layer and block, so the same market always has the same targets.
    order = np.argsort(-quotients, kind="stable")
    order = order[quotients[order] > 0]
    blocks = order // steps
    dealt = np.searchsorted(np.cumsum(sizes.ravel()[blocks]), free_bytes, side="right")
    return np.bincount(blocks[:dealt], minlength=demand.size).astype(np.uint16).reshape(demand.shape)
