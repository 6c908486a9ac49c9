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
Rows = tuple[IndexArray, npt.NDArray[np.int64]]
FloatArray = npt.NDArray[np.float64]

NOBODY, ALL_PAUSED, HERE = -1, -2, -3
PAIR_BYTES = 4


class Group:
    """The pairs that one replica computes, in the order of their tokens."""

    __slots__ = ("_rows", "pairs", "replica", "row_range", "slots", "tokens")

    def __init__(self, replica: Replica, tokens: IndexArray, slots: IndexArray) -> None:
        self.replica, self.tokens, self.slots = replica, tokens, slots
        self._rows: Rows | None = None
        # Known beforehand where the group is a part of `PairsByOwner`: (pairs, 2) as they travel, its part of the rows.
        self.pairs: npt.NDArray[np.uint16] | None = None
        self.row_range: tuple[int, int] | None = None

    @property
    def rows(self) -> Rows:
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


class PairsByOwner:
    """All pairs of a step sorted by owner, then by token; groups are views of these arrays.

    Numpy's cost is per call: with 32 owners a layer would pay it 32 times for arrays of a few entries. flat: the pairs'
    flat numbers; remote_rows: the token of every row that travels, owner by owner.
    """

    def __init__(self, owner_of_pair: npt.NDArray[np.int64], expert_of_pair: npt.NDArray[np.int32], slots: int) -> None:
        self.flat = np.argsort(owner_of_pair, kind="stable")
        owners = owner_of_pair[self.flat]
        self._tokens, self._slots = np.divmod(self.flat, slots)
        changes = np.flatnonzero(owners[1:] != owners[:-1])
        bounds = np.empty(len(changes) + 2, np.intp)
        bounds[0], bounds[-1] = 0, len(owners)
        np.add(changes, 1, out=bounds[1:-1])
        starts = bounds[:-1]
        is_new = np.empty(len(owners), bool)
        np.not_equal(self._tokens[1:], self._tokens[:-1], out=is_new[1:])
        is_new[starts] = True
        row = is_new.cumsum() - 1
        self._row_of_pair = row if len(starts) == 1 else row - np.repeat(row[starts], bounds[1:] - starts)
        self._row_tokens = self._tokens[is_new]
        self._wire = np.empty((len(owners), 2), np.uint16)
        self._wire[:, 0] = self._row_of_pair
        self._wire[:, 1] = expert_of_pair[self.flat]
        self._bounds: list[int] = bounds.tolist()
        self._row_bounds = [*row[starts].tolist(), len(self._row_tokens)]
        self._owners: list[int] = owners[starts].tolist()
        # Negative owners, whose pairs stay here, come first.
        self._first_row = next(
            (self._row_bounds[n] for n, owner in enumerate(self._owners) if owner >= 0), len(self._row_tokens)
        )

    @property
    def remote_rows(self) -> IndexArray:
        return self._row_tokens[self._first_row :]

    def parts(self) -> Iterator[tuple[int, int, IndexArray]]:
        """(owner, number of the part, its pairs' flat numbers in ascending order) of every owner that occurs."""
        for number, owner in enumerate(self._owners):
            yield owner, number, self.flat[self._bounds[number] : self._bounds[number + 1]]

    def group(self, number: int, replica: Replica) -> Group:
        """A part as the group of a replica."""
        start, stop = self._bounds[number], self._bounds[number + 1]
        first, last = self._row_bounds[number], self._row_bounds[number + 1]
        found = Group(replica, self._tokens[start:stop], self._slots[start:stop])
        found._rows = (self._row_tokens[first:last], self._row_of_pair[start:stop])
        found.pairs = self._wire[start:stop]
        found.row_range = (first - self._first_row, last - self._first_row)
        return found


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
