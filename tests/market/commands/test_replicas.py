"""market/commands/replicas.py: assigned is not held."""

import pytest
from pytest_django import Settings

from market import commands, presence, queries, snapshots, store
from market.errors import BadRequest, ClaimEnded, DigestMismatch, StaleFence, UnknownClaim
from market.models import Event
from tests.builders import (
    DIGEST,
    FINGERPRINT,
    MORNING,
    OTHER_DIGEST,
    claimed,
    demo_build,
    later,
    registered,
    verified,
)

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


def test_a_device_whose_connection_closed_loses_its_replicas_long_before_its_lease(settings: Settings) -> None:
    settings.LEASE_SECONDS = 120.0
    presence.recording_since(MORNING)
    gone, here = registered("Gone"), registered("Here")
    lost, kept = verified(claimed(gone, layer=0)), verified(claimed(here, layer=1))
    for device in (gone, here):
        presence.mark_connected(device.node_id, later(100))
    presence.mark_left(gone.node_id, later(101))

    assert commands.lose_gone(later(130)) == []
    assert commands.lose_gone(later(131)) == [lost.claim_id]
    assert commands.lose_gone(later(132)) == []

    commands.expire_leases(later(132))
    market = snapshots.build_market(FINGERPRINT, None)
    assert queries.live_coverage(FINGERPRINT)[:2, 0].tolist() == [0, 1]
    assert market.present[:2, 0].tolist() == [0, 1], "somebody else may take the slice"
    assert {claim.claim_id for claim in queries.all_open_claims()} == {lost.claim_id, kept.claim_id}
    event = Event.objects.latest("position")
    assert (event.name, event.body["reason"]) == ("replica-lost", "its connection closed and it did not come back")


def test_a_device_that_comes_back_soon_loses_nothing(settings: Settings) -> None:
    settings.LEASE_SECONDS = 120.0
    presence.recording_since(MORNING)
    bob = registered()
    verified(claimed(bob))
    presence.mark_left(bob.node_id, later(10))
    presence.mark_connected(bob.node_id, later(39))

    assert commands.lose_gone(later(60)) == []

    assert queries.live_coverage(FINGERPRINT).sum() == 8


def test_a_device_that_fell_silent_before_its_connection_closed_waits_no_second_time(settings: Settings) -> None:
    settings.LEASE_SECONDS = 120.0
    presence.recording_since(MORNING)
    bob = registered()
    claim = verified(claimed(bob))
    presence.mark_connected(bob.node_id, later(100))
    presence.mark_left(bob.node_id, later(140))

    assert commands.lose_gone(later(147)) == []
    assert commands.lose_gone(later(148)) == [claim.claim_id]


def test_a_replica_that_was_lost_is_live_again_once_it_is_verified_again(settings: Settings) -> None:
    settings.LEASE_SECONDS = 120.0
    presence.recording_since(MORNING)
    bob = registered()
    claim = verified(claimed(bob))
    presence.mark_left(bob.node_id, later(10))
    commands.lose_gone(later(40))

    presence.mark_connected(bob.node_id, later(50))
    commands.verify_replica(claim.claim_id, claim.fence, DIGEST, "backbone")

    assert commands.lose_gone(later(80)) == []
    assert queries.live_coverage(FINGERPRINT).sum() == 8
