"""The hot set: which covered experts the backbone computes itself, so that its cores work while it waits for workers.

A layer call sends rows away and waits for the last answer. Local work up to that wait costs nothing; more of it makes
the step longer. So in each layer the most used experts stay here until their expected time fills the wait, or until the
byte budget (they are pinned in RAM) is spent. Experts that nobody covers are computed here in any case: their time
comes off the wait first.

Pure functions over arrays (layers, experts); no clock, no threads, no memory. docs/decisions/0010-hot-set.md.
"""

import base64
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inference.hot_set_meter import LayerLoads

Flags = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]

# Two kinds of inertia, or experts at the edge would come and go with every plan: a newcomer must be this much hotter
# than the member it replaces, and members may fill a little more than the wait before one has to go.
MEMBER_BONUS = 1.25
MEMBER_SLACK = 1.15
# After the first expert that does not fit, smaller ones behind it may: a few looks are enough.
FILLING_ROUNDS = 3


@dataclass(frozen=True)
class HotBudget:
    """bytes: most that is pinned; seconds: local time per layer call, None: the measured wait; seconds_share: part of
    the wait that this process can use (cores / threads of all lanes, at most 1); uncovered_first: uncovered experts
    are pinned before covered ones, because the file does not fit into RAM and their every use would read the disk."""

    bytes: int
    seconds: float | None = None
    seconds_share: float = 1.0
    uncovered_first: bool = False


@dataclass(frozen=True)
class HotPlan:
    """flags (layers, experts): the set; seconds (layers,): expected local time per call, uncovered experts included;
    budget_seconds (layers,): what was there to fill; bytes: of the whole set."""

    flags: Flags
    seconds: FloatArray
    budget_seconds: FloatArray
    bytes: int

    @property
    def experts(self) -> int:
        return int(self.flags.sum())


def plan_hot_set(
    loads: LayerLoads, covered: Flags, expert_bytes: npt.NDArray[np.int64], members: Flags, budget: HotBudget
) -> HotPlan:
    """The next set.

    covered (layers, experts): experts that a worker holds; expert_bytes (layers,): of one expert, 0 for layers without
    experts; members: the present set. Ties go to the lower layer, then the lower expert.
    """
    rows = loads.rows_per_call
    seconds = rows * loads.seconds_per_row[:, None]
    available = loads.wait_seconds if budget.seconds is None else np.full(len(rows), budget.seconds)
    available = available * budget.seconds_share
    candidates = (rows > 0) & (covered | members | budget.uncovered_first)
    forced = (rows > 0) & ~covered
    left = available - np.where(forced & ~candidates, seconds, 0.0).sum(axis=1)

    order_value = np.where(members, MEMBER_BONUS, 1.0) * rows
    in_time = _within_time(candidates, order_value, seconds, left, members)
    if budget.uncovered_first:  # they take the time anyway; whether they are in RAM is the question
        in_time |= candidates & forced
        order_value = np.where(forced, order_value + order_value.max(initial=0.0) + 1.0, order_value)
    flags = _within_bytes(in_time, order_value * loads.calls_per_second[:, None], expert_bytes, budget.bytes)
    local = flags | forced
    return HotPlan(
        flags,
        np.where(local, seconds, 0.0).sum(axis=1),
        available,
        int((flags.sum(axis=1) * expert_bytes).sum()),
    )


def _within_time(
    candidates: Flags, value: FloatArray, seconds: FloatArray, left_seconds: FloatArray, members: Flags
) -> Flags:
    """Per layer the most valued candidates whose times add up to what is left; members may exceed it a little."""
    limit = np.where(members, MEMBER_SLACK, 1.0) * left_seconds[:, None]
    chosen = np.zeros_like(candidates)
    for _ in range(FILLING_ROUNDS):
        used = np.where(chosen, seconds, 0.0).sum(axis=1, keepdims=True)
        fits_alone = candidates & ~chosen & (used + seconds <= limit)
        order = np.argsort(np.where(fits_alone, -value, np.inf), axis=1, kind="stable")
        used = used + np.cumsum(np.take_along_axis(np.where(fits_alone, seconds, 0.0), order, axis=1), axis=1)
        found = np.zeros_like(candidates)
        np.put_along_axis(found, order, used <= np.take_along_axis(limit, order, axis=1), axis=1)
        chosen |= found & fits_alone
    return chosen


def _within_bytes(chosen: Flags, value: FloatArray, expert_bytes: npt.NDArray[np.int64], most_bytes: int) -> Flags:
    """Over all layers the chosen experts of greatest value per byte, as many as the bytes allow."""
    sizes = np.broadcast_to(expert_bytes[:, None], chosen.shape)
    worth = np.where(chosen, value / np.maximum(sizes, 1), -1.0).ravel()
    order = np.argsort(-worth, kind="stable")
    order = order[worth[order] >= 0]
    fits = np.cumsum(sizes.ravel()[order]) <= most_bytes
    kept = np.zeros(chosen.size, bool)
    kept[order[fits]] = True
    return kept.reshape(chosen.shape)


def pack_flags(flags: Flags) -> str:
    """(layers, experts) bool -> base64 of its bits, rows one after another."""
    return base64.b64encode(np.packbits(flags).tobytes()).decode("ascii")


def unpack_flags(text: str, layers: int, experts: int) -> Flags:
    """What `pack_flags` made; raises ValueError when the text is of another size."""
    bits = np.frombuffer(base64.b64decode(text, validate=True), np.uint8)
    if len(bits) != math.ceil(layers * experts / 8):
        raise ValueError(f"{len(bits)} bytes are no flags of {layers} layers with {experts} experts")
    return np.unpackbits(bits, count=layers * experts).astype(bool).reshape(layers, experts)
