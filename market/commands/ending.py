"""The events with which a claim ends: a verified replica is lost first."""

from datetime import datetime

from market.events import ClaimExpired, ClaimReleased, Event, ReplicaLost
from market.queries import ClaimView


def end_events(claim: ClaimView, reason: str, at: datetime) -> list[Event]:
    """A release for `reason`."""
    released = ClaimReleased(claim.claim_id, claim.build, claim.layer, reason, at)
    return [*_lost(claim, reason, at), released]


def expiry_events(claim: ClaimView, last_seen_at: datetime, at: datetime) -> list[Event]:
    """An expiry: the node was last seen at `last_seen_at`."""
    expired = ClaimExpired(claim.claim_id, claim.build, claim.layer, last_seen_at, at)
    return [*_lost(claim, "lease_expired", at), expired]


def _lost(claim: ClaimView, reason: str, at: datetime) -> list[Event]:
    if claim.state != "live":
        return []
    return [ReplicaLost(claim.claim_id, claim.build, claim.layer, reason, at)]
