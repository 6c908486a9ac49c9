"""market/histories.py: what happened to a device, newest first."""

import pytest

from market import commands, histories
from tests.builders import MORNING, claimed, demo_build, later, registered, verified, worked

pytestmark = pytest.mark.django_db


def test_a_history_has_the_device_its_claims_and_its_money_and_nobody_elses() -> None:
    commands.publish_build(demo_build(), now=MORNING)
    bob, carol = registered("Bob"), registered("Carol")
    verified(claimed(carol, 0, 8, 16))
    claim = verified(claimed(bob, 0, 0, 8))
    worked(bob, claim)
    commands.release_claim(bob.node_id, claim.claim_id, now=later(120))

    names = [event.name for event in histories.node_history(bob.node_id)]

    assert names == [
        "claim-released",
        "replica-lost",
        "work-credited",
        "replica-verified",
        "claim-granted",
        "node-registered",
    ]


def test_a_history_is_cut_and_keeps_the_newest() -> None:
    bob = registered()
    for number in range(4):
        commands.message_node(bob.node_id, f"message {number}", by="olga")

    assert [event.what for event in histories.node_history(bob.node_id, limit=2)] == [
        "text: message 3, by: olga",
        "text: message 2, by: olga",
    ]


def test_no_digest_of_a_token_is_in_a_history() -> None:
    bob = registered()
    commands.rotate_token(bob.node_id)

    assert not any("sha256" in event.what for event in histories.node_history(bob.node_id))
