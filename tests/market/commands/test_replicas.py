"""market/commands/replicas.py: assigned is not held."""

import pytest

from market import commands, queries, store
from market.errors import BadRequest, ClaimEnded, DigestMismatch, StaleFence, UnknownClaim
from tests.builders import DIGEST, FINGERPRINT, OTHER_DIGEST, claimed, demo_build, registered, verified

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _published() -> None:
    commands.publish_build(demo_build())


def test_a_delivered_slice_is_still_pending_and_a_verified_one_is_live() -> None:
    bob = registered()
    claim = claimed(bob)

    assert commands.record_delivery(bob.node_id, claim.claim_id, claim.fence, DIGEST)
    pending = queries.node_claims(bob.node_id)[0]
    assert commands.verify_replica(claim.claim_id, claim.fence, DIGEST, "backbone")
    live = queries.node_claims(bob.node_id)[0]

    assert (pending.state, pending.sha256) == ("pending", DIGEST)
    assert (live.state, live.sha256) == ("live", DIGEST)
    assert queries.live_coverage(FINGERPRINT).sum() == 8


def test_saying_it_twice_appends_once() -> None:
    bob = registered()
    claim = claimed(bob)
    commands.record_delivery(bob.node_id, claim.claim_id, claim.fence, DIGEST)
    commands.verify_replica(claim.claim_id, claim.fence, DIGEST, "backbone")
    before = store.last_position()

    assert not commands.record_delivery(bob.node_id, claim.claim_id, claim.fence, DIGEST)
    assert not commands.verify_replica(claim.claim_id, claim.fence, DIGEST, "backbone")

    assert store.last_position() == before


def test_a_slice_may_be_delivered_again_until_it_is_verified() -> None:
    bob = registered()
    claim = claimed(bob)
    commands.record_delivery(bob.node_id, claim.claim_id, claim.fence, OTHER_DIGEST)

    assert commands.record_delivery(bob.node_id, claim.claim_id, claim.fence, DIGEST)
    verified(claim)

    with pytest.raises(DigestMismatch):
        commands.record_delivery(bob.node_id, claim.claim_id, claim.fence, OTHER_DIGEST)


def test_what_was_delivered_must_be_what_was_checked() -> None:
    mallory = registered("Mallory")
    claim = claimed(mallory)
    commands.record_delivery(mallory.node_id, claim.claim_id, claim.fence, OTHER_DIGEST)

    with pytest.raises(DigestMismatch):
        commands.verify_replica(claim.claim_id, claim.fence, DIGEST, "backbone")

    assert queries.live_coverage(FINGERPRINT).sum() == 0


def test_a_lost_replica_keeps_its_claim_and_can_be_verified_again() -> None:
    bob = registered()
    claim = verified(claimed(bob))

    assert commands.lose_replica(claim.claim_id, claim.fence, "disconnected")
    assert not commands.lose_replica(claim.claim_id, claim.fence, "disconnected")

    assert queries.node_claims(bob.node_id)[0].state == "pending"
    assert queries.coverage(FINGERPRINT).sum() == 8
    assert verified(claim).state == "live"


def test_an_old_fence_counts_for_nothing() -> None:
    claim = claimed(registered())

    for fence in (claim.fence - 1, claim.fence + 1):
        with pytest.raises(StaleFence):
            commands.record_delivery(claim.node_id, claim.claim_id, fence, DIGEST)
        with pytest.raises(StaleFence):
            commands.verify_replica(claim.claim_id, fence, DIGEST, "backbone")
        with pytest.raises(StaleFence):
            commands.lose_replica(claim.claim_id, fence, "disconnected")


def test_an_ended_claim_is_told_apart_from_one_that_never_was() -> None:
    bob = registered()
    claim = claimed(bob)
    commands.release_claim(bob.node_id, claim.claim_id)

    with pytest.raises(ClaimEnded):
        commands.verify_replica(claim.claim_id, claim.fence, DIGEST, "backbone")
    with pytest.raises(ClaimEnded):
        commands.record_delivery(bob.node_id, claim.claim_id, claim.fence, DIGEST)
    with pytest.raises(UnknownClaim):
        commands.verify_replica(999, 1, DIGEST, "backbone")


def test_nobody_delivers_for_another() -> None:
    claim = claimed(registered())
    mallory = registered("Mallory")

    with pytest.raises(UnknownClaim):
        commands.record_delivery(mallory.node_id, claim.claim_id, claim.fence, DIGEST)


@pytest.mark.parametrize("digest", ["", "ab", "AB" * 32, "zz" * 32])
def test_a_digest_has_one_form(digest: str) -> None:
    claim = claimed(registered())

    with pytest.raises(BadRequest):
        commands.record_delivery(claim.node_id, claim.claim_id, claim.fence, digest)
