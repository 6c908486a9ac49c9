"""Replicas per expert, from claimed ranges. Pure numpy."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Replicas = NDArray[np.uint16]


@dataclass(frozen=True)
class CoverageSummary:
    """Figures of one build, for pages and logs."""

    experts: int
    covered: int
    at_target: int
    least_replicas: int
    mean_replicas: float


def count_replicas(ranges: Iterable[tuple[int, int, int]], layers: int, experts: int) -> Replicas:
    """ranges of (row of the layer, first, last) with `last` left out -> replicas (layers, experts) uint16.

    Each range adds +1 where it begins and -1 where it ends; the running sum along a layer is the answer, so the cost
    does not depend on how long the ranges are.
    """
    steps = np.zeros((layers, experts + 1), np.int32)
    table = np.array(list(ranges), np.int64).reshape(-1, 3)
    np.add.at(steps, (table[:, 0], table[:, 1]), 1)
    np.add.at(steps, (table[:, 0], table[:, 2]), -1)
    return steps.cumsum(axis=1)[:, :experts].astype(np.uint16)


def held_experts(ranges: Iterable[tuple[int, int, int]], layers: int, experts: int) -> NDArray[np.bool_]:
    """Which experts the ranges cover at least once: (layers, experts) bool."""
    return count_replicas(ranges, layers, experts) > 0


def summary(replicas: Replicas, target: int) -> CoverageSummary:
    return CoverageSummary(
        experts=replicas.size,
        covered=int((replicas > 0).sum()),
        at_target=int((replicas >= target).sum()),
        least_replicas=int(replicas.min(initial=0xFFFF)) if replicas.size else 0,
        mean_replicas=float(replicas.mean()) if replicas.size else 0.0,
    )
