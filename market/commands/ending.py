"""The events with which a claim ends: a verified replica is lost first."""

from datetime import datetime
from typing import Protocol

from market.events import ClaimExpired, ClaimReleased, Event, ReplicaLost


class OpenClaim(Protocol):
    """What these functions read of a claim: a view of the tables, or a row of a fold."""

    @property
    def claim_id(self) -> int: ...
    @property
    def build(self) -> str: ...
    @property
    def layer(self) -> int: ...
    @property
    def state(self) -> str: ...


def end_events(claim: OpenClaim, reason: str, at: datetime) -> list[Event]:
    """A release for `reason`."""
    released = ClaimReleased(claim.claim_id, claim.build, claim.layer, reason, at)
    return [*_lost(claim, reason, at), released]


def expiry_events(claim: OpenClaim, last_seen_at: datetime, at: datetime) -> list[Event]:
    """An expiry: the node was last seen at `last_seen_at`."""
    expired = ClaimExpired(claim.claim_id, claim.build, claim.layer, last_seen_at, at)
    return [*_lost(claim, "lease_expired", at), expired]


def _lost(claim: OpenClaim, reason: str, at: datetime) -> list[Event]:
    if claim.state != "live":
        return []
    return [ReplicaLost(claim.claim_id, claim.build, claim.layer, reason, at)]
