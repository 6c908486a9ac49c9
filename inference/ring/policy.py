"""Lanes or rings: which of an engine's contexts a request goes to. The one place where that is decided.

A lane of this host asks workers for the experts of every layer: many sequences at once hide the round trips, one alone
waits for all of them. A ring of stages computes its experts where its layers are: one round trip over the whole ring
for each token. So a request that asks for low latency goes to a ring, every other to a lane.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from inference.ring.context import DEFAULT_PATIENCE_SECONDS, OpenLine


class LaneKind(StrEnum):
    """Where the layers of a lane are computed."""

    LOCAL = "local"
    RING = "ring"


@dataclass(frozen=True)
class Rings:
    """What an engine needs for lanes on rings. lanes: contexts, each with its place on every stage; sequences: at once
    over all of them; has_ring: whether the stages that answer hold the whole model; patience_seconds: see RingContext;
    threads: of each stage for one step. has_strangers: whether stages of the market may be on them."""

    open_line: OpenLine
    has_ring: Callable[[], bool]
    lanes: int = 1
    sequences: int = 4
    threads: int = 1
    patience_seconds: float = DEFAULT_PATIENCE_SECONDS
    has_strangers: bool = False

    @property
    def per_lane(self) -> int:
        return -(-self.sequences // self.lanes)


def kind_for(*, low_latency: bool, has_local_lanes: bool, rings: Rings | None, trusted_only: bool = False) -> LaneKind:
    """A ring for who asks for low latency while there is a whole one, and for everybody where no lane is local; never
    for who shows rows to trusted devices only, where strangers may be on the ring."""
    if rings is None or (trusted_only and rings.has_strangers):
        return LaneKind.LOCAL
    if not has_local_lanes:
        return LaneKind.RING
    return LaneKind.RING if low_latency and rings.has_ring() else LaneKind.LOCAL
