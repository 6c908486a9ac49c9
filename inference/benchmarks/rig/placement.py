"""Which worker holds which experts. Pure: plain ranges in, plain ranges out."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from inference.verify.local_swarm import Range

FENCE = 1
ROUNDS = 8
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

    demand: (layers, experts) rows. Every layer is cut into `workers` runs of about equal demand. Then, layer by layer
    and over again while it helps, the most wanted run goes to the worker that has least to do in all other layers: what
    a market that follows demand arrives at. One run of each layer for everybody, because a layer waits for its slowest.
    """
    runs = {layer: [Range(layer, *cut) for cut in pairwise(cuts_of(demand[layer], workers))] for layer in layers}
    asked = {layer: np.array([demand[layer, run.first : run.last].sum() for run in runs[layer]]) for layer in layers}
    run_of = {layer: np.arange(workers) for layer in layers}  # worker -> number of its run
    loads = np.sum([asked[layer] for layer in layers], axis=0, dtype=np.float64)
    for layer in [*layers] * ROUNDS:
        others = loads - asked[layer][run_of[layer]]
        order = np.empty(workers, np.intp)
        order[np.argsort(others, kind="stable")] = np.argsort(-asked[layer], kind="stable")
        if (found := others + asked[layer][order]).max() <= loads.max():
            run_of[layer], loads = order, found
    return [tuple(runs[layer][int(run_of[layer][worker])] for layer in layers) for worker in range(workers)]


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
