"""market/offers.py: what is wanted, what it pays, and why there is nothing."""

import pytest

from market import commands, queries
from market.errors import BudgetExhausted, BudgetTooSmall, FullyCovered, MarketError, NoBuilds, Suspended
from market.offers import idle_reason, offers_for
from market.policy import Policy
from tests.builders import DEMO_EXPERT_BYTES, FINGERPRINT, Device, claimed, demo_build, later, registered, verified

pytestmark = pytest.mark.django_db


def view(device: Device) -> queries.NodeView:
    node = queries.node(device.node_id)
    assert node is not None
    return node


def test_the_best_ranges_come_first_and_fit_the_budget() -> None:
    commands.publish_build(demo_build())
    claimed(registered("Alice"), layer=0, first=0, last=32)

    found = offers_for(view(registered()), 10 * DEMO_EXPERT_BYTES)

    assert found.reason is None
    assert {offer.run.layer for offer in found.offers[:7]} == set(range(1, 8))
    assert found.offers[-1].run.layer == 0
    assert all(offer.run.size_bytes <= 10 * DEMO_EXPERT_BYTES for offer in found.offers)
    rewards = [offer.microcredits_per_hour_per_megabyte for offer in found.offers]
    assert rewards == sorted(rewards, reverse=True)


def test_a_price_falls_as_soon_as_somebody_claims() -> None:
    commands.publish_build(demo_build(layers=1))
    bob = view(registered())
    before = offers_for(bob).offers[0]

    claimed(registered("Alice"), layer=0, first=0, last=32)

    after = offers_for(bob).offers[0]
    assert (after.run.first, after.run.last) == (before.run.first, before.run.last)
    assert after.rate_microcredits_per_hour < before.rate_microcredits_per_hour


def test_what_is_offered_is_what_a_claim_gets() -> None:
    commands.publish_build(demo_build())
    bob = registered()
    run = offers_for(view(bob), 20 * DEMO_EXPERT_BYTES).offers[0].run

    claim = claimed(bob, run.layer, run.first, run.last)

    assert claim.cap_microcredits_per_hour == run.price_microcredits_per_hour
    assert claim.rate_microcredits_per_teraflop == run.rate_microcredits_per_teraflop


def test_the_budget_of_the_registration_is_the_default() -> None:
    commands.publish_build(demo_build())
    node_id, _ = commands.register_node("Bob", "numpy", 3 * DEMO_EXPERT_BYTES)

    found = offers_for(view(Device(node_id, "")))

    assert {offer.run.last - offer.run.first for offer in found.offers} == {3}


def test_every_reason_for_no_work_is_told() -> None:
    bob = registered()
    assert isinstance(offers_for(view(bob)).reason, NoBuilds)
    commands.publish_build(demo_build())
    assert isinstance(offers_for(view(bob), 1).reason, BudgetTooSmall)
    commands.claim_best(bob.node_id, 10**9)
    assert isinstance(offers_for(view(bob)).reason, FullyCovered)
    commands.change_policy(Policy(budget_microcredits_per_hour=1), by="operator", reason="tested")
    assert isinstance(offers_for(view(registered("Alice"))).reason, BudgetExhausted)
    commands.suspend_node(bob.node_id, reason="wrong answers", by="audit")
    assert isinstance(offers_for(view(bob)).reason, Suspended)


def test_a_device_learns_why_it_earns_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def reason() -> str | None:
        found = idle_reason(view(bob), queries.node_claims(bob.node_id))
        return found.code if isinstance(found, MarketError) else found

    bob = registered()
    reasons = [reason()]
    commands.publish_build(demo_build())
    reasons.append(reason())
    claim = claimed(bob)
    reasons.append(reason())
    verified(claim)
    reasons.append(reason())
    monkeypatch.setattr("django.utils.timezone.now", lambda: later(60))
    commands.credit_work("k", FINGERPRINT, bob.node_id, later(0), later(60), [(1, 0, 10**12)])
    reasons.append(reason())
    commands.suspend_node(bob.node_id, reason="wrong answers", by="audit")
    reasons.append(reason())

    assert reasons == ["no_builds", "not_claimed", "not_verified", None, "cap_reached", "suspended"]
