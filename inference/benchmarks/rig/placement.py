"""Which worker holds which experts. Pure: plain ranges in, plain ranges out."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from inference.verify.local_swarm import Range

FENCE = 1
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Member:
    """One worker: its name is GROUP/NUMBER, so that a table can be made of one group alone."""

    group: str
    number: int
    url: str
    held: tuple[Range, ...]
    rows_per_second: float | None = None

    @property
    def name(self) -> str:
        return f"{self.group}/{self.number}"

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "held": [list(one) for one in self.held]}

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> "Member":
        return cls(**{**body, "held": tuple(Range(*one) for one in body["held"])})


def even(layers: Sequence[int], experts: int, workers: int) -> list[tuple[Range, ...]]:
    """The same cut of every layer: worker k holds the k-th of `workers` equal runs of each."""
    cuts = [experts * number // workers for number in range(workers + 1)]
    return [tuple(Range(layer, first, last) for layer in layers) for first, last in pairwise(cuts)]


def by_demand(demand: FloatArray, layers: Sequence[int], workers: int) -> list[tuple[Range, ...]]:
    """One run of every layer for each worker, so that all are asked for about as many rows.

    demand: (layers, experts) rows. Every layer is cut into `workers` runs of about equal demand; then, layer by layer,
    the most wanted run goes to the worker with the least work so far: what a market that follows demand arrives at.
    """
    loads = np.zeros(workers)
    held: list[list[Range]] = [[] for _ in range(workers)]
    for layer in layers:
        runs = [Range(layer, first, last) for first, last in pairwise(cuts_of(demand[layer], workers))]
        asked = {run: float(demand[layer, run.first : run.last].sum()) for run in runs}
        for worker, run in zip(
            np.argsort(loads, kind="stable"), sorted(runs, key=lambda run: -asked[run]), strict=True
        ):
            held[worker].append(run)
            loads[worker] += asked[run]
    return [tuple(runs) for runs in held]


def cuts_of(demand: FloatArray, parts: int) -> list[int]:
    """Borders of `parts` runs, none empty, each border where the demand before it is nearest to its share."""
    experts = len(demand)
    assert parts <= experts
    total = np.concatenate([[0.0], np.cumsum(demand, dtype=np.float64)])
    cuts = [0]
    for number in range(1, parts):
        lowest, highest = cuts[-1] + 1, experts - (parts - number)
        wanted = total[-1] * number / parts
        cuts.append(lowest + int(np.argmin(np.abs(total[lowest : highest + 1] - wanted))))
    return [*cuts, experts]


def imbalance(demand: FloatArray, held: Sequence[Sequence[Range]]) -> float:
    """Rows asked of the busiest worker, relative to the mean."""
    loads = [sum(float(demand[run.layer, run.first : run.last].sum()) for run in runs) for runs in held]
    return max(loads) / (sum(loads) / len(loads))
