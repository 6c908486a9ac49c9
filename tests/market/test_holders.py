"""market/holders.py: who holds an expert, and who held it."""

import pytest

from market import commands, holders
from tests.builders import FINGERPRINT, MORNING, claimed, demo_build, later, registered, verified

pytestmark = pytest.mark.django_db


def test_holdings_cover_the_expert_open_ones_first_then_the_latest() -> None:
    commands.publish_build(demo_build(), now=MORNING)
    old, bob, far = registered("old"), registered("Bob"), registered("far")
    ended = claimed(old, 2, 0, 8)
    commands.release_claim(old.node_id, ended.claim_id, now=later(60))
    verified(claimed(bob, 2, 4, 12))
    claimed(far, 2, 16, 24)

    found = holders.holdings(FINGERPRINT, 2, 5)

    assert [(one.name, one.state, one.is_open) for one in found] == [("Bob", "live", True), ("old", "released", False)]
    assert found[1].end_reason == "owner"


def test_live_ranges_leave_out_what_is_pending() -> None:
    commands.publish_build(demo_build(), now=MORNING)
    bob, carol = registered("Bob"), registered("Carol")
    verified(claimed(bob, 1, 0, 4))
    claimed(carol, 1, 4, 8)

    assert holders.live_ranges(FINGERPRINT) == [(1, 0, 4, bob.node_id)]
    assert holders.holding_nodes() == {bob.node_id, carol.node_id}
