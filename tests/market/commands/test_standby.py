"""market/commands/standby.py: a little for being there, proven, once per window, within the cap."""

import pytest

from market import commands, presence, queries, replay
from market.commands.standby import window_before
from market.events import WorkCredited
from market.models import Event
from market.policy import Policy
from tests.builders import FINGERPRINT, claimed, demo_build, later, registered, verified

pytestmark = pytest.mark.django_db


def test_windows_are_the_last_full_ten_minutes() -> None:
    assert window_before(later(600)) == (later(0), later(600))
    assert window_before(later(1799)) == (later(600), later(1200))
    assert window_before(later(0)) == (later(-600), later(0))


def test_only_replicas_that_were_live_all_the_time_are_paid_and_only_once() -> None:
    commands.publish_build(demo_build())
    bob, carol, dave = registered("Bob"), registered("Carol"), registered("Dave")
    claim = verified(claimed(bob, layer=0))
    claimed(carol, layer=1)
    verified(claimed(dave, layer=2), now=later(100))

    paid = [commands.credit_standby(later(second)) for second in (599, 601, 700, 1199)]

    share = claim.cap_microcredits_per_hour * 5 // 600
    assert paid == [0, share, 0, 0]
    assert queries.balances(bob.node_id)["pending"] == share
    assert queries.balances(carol.node_id).get("pending", 0) == 0
    event = Event.objects.latest("position")
    assert (event.name, [line["rows"] for line in event.body["work"]]) == (WorkCredited.NAME, [0])
    assert replay.check().ok


def test_a_silent_device_and_a_policy_without_it_pay_nothing() -> None:
    commands.publish_build(demo_build())
    bob = registered("Bob")
    verified(claimed(bob, layer=0))
    presence.note_silent({bob.node_id})

    assert commands.credit_standby(later(601)) == 0
    presence.note_silent(set())
    commands.change_policy(Policy(standby_percent=0), by="operator", reason="tested")
    assert commands.credit_standby(later(601)) == 0


def test_stand_by_and_work_share_one_cap() -> None:
    commands.publish_build(demo_build())
    bob = registered("Bob")
    claim = verified(claimed(bob, layer=0))
    window = (later(0), later(60))
    commands.credit_work("k", FINGERPRINT, bob.node_id, *window, [(claim.claim_id, 0, 10**12)], now=later(61))

    assert commands.credit_standby(later(601)) == 0
    assert queries.balances(bob.node_id)["pending"] == claim.cap_microcredits_per_hour
