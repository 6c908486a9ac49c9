"""From an assigned range to a held one: delivered by word, verified by proof, lost when the proof no longer holds."""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.conf import settings
from django.utils import timezone

from market import presence, queries, store
from market.commands.claims import open_claim
from market.errors import BadRequest, DigestMismatch, StaleFence
from market.events import ReplicaLost, ReplicaVerified, SliceDelivered

GONE_REASON = "its connection closed and it did not come back"
_SHA256 = re.compile(r"[0-9a-f]{64}")


def record_delivery(node_id: str, claim_id: int, fence: int, sha256: str, *, now: datetime | None = None) -> bool:
    """The device says it holds the slice; False when it has said so before with the same digest.

    Raises BadRequest, UnknownClaim, ClaimEnded, StaleFence, and DigestMismatch when another one was verified.
    """
    _check_digest(sha256)
    with store.writing() as writer:
        claim = _fenced(open_claim(claim_id, node_id), fence)
        if claim.sha256 == sha256:
            return False
        if claim.state == "live":
            raise DigestMismatch(f"claim {claim_id} was verified with another digest; fetch the slice again")
        writer.append([SliceDelivered(claim_id, claim.build, claim.layer, sha256, now or timezone.now())])
    return True


def verify_replica(claim_id: int, fence: int, sha256: str, backbone: str, *, now: datetime | None = None) -> bool:
    """A backbone found the right digest and a right answer; False when the replica was live already.

    sha256: the digest that the backbone knows to be right. Raises BadRequest, UnknownClaim, ClaimEnded, StaleFence, and
    DigestMismatch when the device delivered something else.
    """
    _check_digest(sha256)
    with store.writing() as writer:
        claim = _fenced(open_claim(claim_id), fence)
        if claim.sha256 not in (None, sha256):
            raise DigestMismatch(f"claim {claim_id}: the device delivered another slice than the one that was checked")
        if claim.state == "live":
            return False
        verified = ReplicaVerified(claim_id, claim.build, claim.layer, sha256, backbone[:80], now or timezone.now())
        writer.append([verified])
    return True


def lose_replica(claim_id: int, fence: int, reason: str, *, now: datetime | None = None) -> bool:
    """A verified replica is no longer served, its claim lives on; False when it was not live.

    Raises UnknownClaim, ClaimEnded, StaleFence.
    """
    with store.writing() as writer:
        claim = _fenced(open_claim(claim_id), fence)
        if claim.state != "live":
            return False
        writer.append([ReplicaLost(claim_id, claim.build, claim.layer, reason[:80], now or timezone.now())])
    return True


def lose_gone(now: datetime) -> list[int]:
    """Replicas of devices that went away are lost, long before their lease ends; the claims that lost one.

    Away is a device whose connection closed a quarter of a lease ago and did not come back, or closed and nothing else
    was seen of it either for as long as makes a device silent.
    """
    if not _gone(queries.all_open_claims(), now):
        return []
    with store.writing() as writer:
        gone = _gone(queries.all_open_claims(), now)[: store.APPEND_LIMIT]
        lost = [ReplicaLost(claim.claim_id, claim.build, claim.layer, GONE_REASON, now) for claim in gone]
        if lost:
            writer.append(lost)
    return [claim.claim_id for claim in gone]


def _gone(claims: Sequence[queries.ClaimView], now: datetime) -> list[queries.ClaimView]:
    live = [claim for claim in claims if claim.state == "live"]
    left = presence.left({claim.node_id for claim in live})
    lease = timedelta(seconds=settings.LEASE_SECONDS)
    closed_before, seen_before = now - presence.GONE_SHARE * lease, now - presence.SILENT_SHARE * lease
    return [
        claim
        for claim in live
        if claim.node_id in left and (left[claim.node_id] <= closed_before or claim.silent_since <= seen_before)
    ]


def _fenced(claim: queries.ClaimView, fence: int) -> queries.ClaimView:
    if claim.fence != fence:
        raise StaleFence(f"claim {claim.claim_id} has fence {claim.fence}, not {fence}; read your claims again")
    return claim


def _check_digest(sha256: str) -> None:
    if not _SHA256.fullmatch(sha256):
        raise BadRequest("sha256 must be 64 lower-case hexadecimal characters")
