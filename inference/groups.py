"""Which replica computes which pairs of a layer: choosing owners, grouping, keeping a group within its owner's cap.

A pair is (token, slot): the slot-th expert that the router chose for a token; its flat number is token x slots + slot.
All pairs of one expert stay together, whatever happens to their group (docs/decisions/0004).
Pure functions over arrays.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from inference.replica_table import LayerReplicas, Replica

IndexArray = npt.NDArray[np.intp]
FloatArray = npt.NDArray[np.float64]

NOBODY, ALL_PAUSED, HERE = -1, -2, -3
PAIR_BYTES = 4


class Group:
    """The pairs that one replica computes, in the order of their tokens."""

    __slots__ = ("_rows", "replica", "slots", "tokens")

    def __init__(self, replica: Replica, tokens: IndexArray, slots: IndexArray) -> None:
        self.replica, self.tokens, self.slots = replica, tokens, slots
        self._rows: tuple[IndexArray, npt.NDArray[np.int64]] | None = None

    @property
    def rows(self) -> tuple[IndexArray, npt.NDArray[np.int64]]:
        """The tokens without repetition, and per pair the index into them. Found once: every layer asks several times,
        and `cached_property` takes a lock each time in Python 3.11."""
        found = self._rows
        if found is None:
            is_new = np.empty(len(self.tokens), bool)
            is_new[0] = True
            np.not_equal(self.tokens[1:], self.tokens[:-1], out=is_new[1:])
            found = self._rows = (self.tokens[is_new], is_new.cumsum() - 1)
        return found

    def moved_bytes(self, row_bytes: int, result_bytes: int) -> int:
        """Bodies of the request and its answer."""
        return len(self.rows[0]) * row_bytes + len(self.tokens) * (PAIR_BYTES + result_bytes)


def choose_owners(layer: LayerReplicas, costs: FloatArray, draws: FloatArray) -> npt.NDArray[np.int64]:
    """(experts,) index into `layer.replicas`; NOBODY holds the expert, or ALL_PAUSED.

    costs: (replicas,) expected seconds, infinite for those to leave alone; draws: (2, experts) uniform in [0, 1).
    Power of two choices: of two candidates drawn at random the one whose answers take less time. Source: Mitzenmacher,
    "The Power of Two Choices in Randomized Load Balancing", IEEE TPDS 12(10), 2001.
    """
    counts, candidates = layer.counts, layer.candidates
    experts = np.arange(len(counts))
    if candidates.shape[1] == 1:
        chosen: npt.NDArray[np.int64] = candidates[:, 0].astype(np.int64)
        chosen[~np.isfinite(costs[chosen]) & (counts > 0)] = ALL_PAUSED
        return chosen
    first, second = (candidates[experts, (draw * counts).astype(np.intp)] for draw in draws)
    chosen = np.where(costs[second] < costs[first], second, first).astype(np.int64)
    stuck = ~np.isfinite(costs[chosen]) & (counts > 0)
    if stuck.any():  # both draws are paused: take the best of all, if any is not
        chosen[stuck] = best_owners(layer, costs, np.flatnonzero(stuck))
    chosen[counts == 0] = NOBODY
    return chosen


def best_owners(layer: LayerReplicas, costs: FloatArray, experts: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """The cheapest owner of each of `experts` (which all have candidates), ALL_PAUSED where no cost is finite."""
    candidates = layer.candidates[experts]
    every = np.where(candidates >= 0, costs[candidates], np.inf)
    best: npt.NDArray[np.int64] = candidates[np.arange(len(experts)), every.argmin(axis=1)].astype(np.int64)
    best[~np.isfinite(every.min(axis=1))] = ALL_PAUSED
    return best


def split_by_owner(owner_of_pair: npt.NDArray[np.int64]) -> Iterator[tuple[int, IndexArray]]:
    """(owner, positions of its pairs in ascending order) for every owner that occurs."""
    order = np.argsort(owner_of_pair, kind="stable")
    sorted_owners = owner_of_pair[order]
    cuts = np.flatnonzero(sorted_owners[1:] != sorted_owners[:-1]) + 1
    for part in np.split(order, cuts):
        yield int(owner_of_pair[part[0]]), part


def within_cap(experts: npt.NDArray[np.int32], pair_bytes: int, cap_bytes: float) -> npt.NDArray[np.bool_]:
    """Which pairs of a group too large for its owner stay in it: whole experts, as many as fit.

    experts: (pairs,) the expert of each; pair_bytes: most that one pair moves.
    """
    numbers, inverse, counts = np.unique(experts, return_inverse=True, return_counts=True)
    order = np.argsort(counts, kind="stable")  # many cold experts rather than few hot ones
    fits = np.zeros(len(numbers), bool)
    fits[order] = np.cumsum(counts[order]) * pair_bytes <= cap_bytes
    kept: npt.NDArray[np.bool_] = fits[inverse]
    return kept
