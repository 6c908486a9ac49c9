"""Who holds which expert right now: an immutable table that the dispatcher reads without locks.

It knows sessions, claims and ranges; it knows nothing of sockets, of the market or of how a replica was verified.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Replica:
    """Experts [first, last) of one layer in the memory of one connected worker, under one lease.

    session: how the transport addresses the worker; fence: the lease's number, which the worker checks; gives_sums:
    whether it can answer with partial sums; takes_q8_0: whether it can read rows of that type.
    """

    session: Hashable
    node_id: str
    claim_id: int
    fence: int
    layer: int
    first: int
    last: int
    kernel_class: str
    gives_sums: bool = False
    takes_q8_0: bool = False


@dataclass(frozen=True)
class LayerReplicas:
    """The replicas of one layer. candidates: (experts, most replicas of one expert) int32 indexes into `replicas`, -1
    where none; counts: (experts,) int32."""

    replicas: tuple[Replica, ...]
    candidates: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int32]


class ReplicaTable:
    """Replicas of one build, indexed by layer and expert."""

    def __init__(self, replicas: Iterable[Replica] = (), *, experts_per_layer: int = 0) -> None:
        self.replicas = tuple(replicas)
        self.experts_per_layer = experts_per_layer
        by_layer: dict[int, list[Replica]] = {}
        for replica in self.replicas:
            by_layer.setdefault(replica.layer, []).append(replica)
        self._layers = {layer: self._index(tuple(found)) for layer, found in by_layer.items()}

    def layer(self, layer: int) -> LayerReplicas | None:
        """The candidates of one layer, or None when nobody holds any of it."""
        return self._layers.get(layer)

    def _index(self, replicas: tuple[Replica, ...]) -> LayerReplicas:
        counts = np.zeros(self.experts_per_layer, np.int32)
        for replica in replicas:
            counts[replica.first : replica.last] += 1
        candidates = np.full((self.experts_per_layer, int(counts.max())), -1, np.int32)
        filled = np.zeros(self.experts_per_layer, np.int32)
        for index, replica in enumerate(replicas):
            experts = np.arange(replica.first, replica.last)
            candidates[experts, filled[experts]] = index
            filled[experts] += 1
        return LayerReplicas(replicas, candidates, counts)
