"""market/commands/owners.py and the owner's part of nodes.py: accounts, tokens, leave, erasing a person."""

import json
from datetime import timedelta

import pytest

from market import commands, presence, queries, replay, tasks
from market.errors import BadRequest, Leaving, UnknownNode
from market.invariants import check_books
from market.models import Event, NodeProfile, OwnerProfile
from tests.builders import MORNING, claimed, demo_build, later, payable_device, registered, verified

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _build() -> None:
    commands.publish_build(demo_build(), now=MORNING)


def test_a_device_belongs_to_an_account_and_can_change_it() -> None:
    bob, first, second = registered(), commands.create_owner("Bob", "IBAN 1"), commands.create_owner()

    for owner_id in (first, first, second, ""):
        commands.link_node(bob.node_id, owner_id, by="owner", reason="mine")

    names = list(Event.objects.filter(name="node-linked").values_list("body__owner_id", flat=True))
    assert names == [first, second, ""]
    with pytest.raises(BadRequest):
        commands.link_node(bob.node_id, "nobody", by="owner", reason="mine")


def test_a_payee_is_kept_apart_from_the_events() -> None:
    owner_id = commands.create_owner("Bob Example", "")
    commands.set_payee(owner_id, "  DE02 1203 \n 0000 ")
    commands.link_node(registered().node_id, owner_id, by="owner", reason="mine")

    assert OwnerProfile.objects.get().payee == "DE02 1203 0000"
    assert "DE02" not in json.dumps(list(Event.objects.values_list("body", flat=True)))
    for wrong in ("x" * 201, "bell\x07"):
        with pytest.raises(BadRequest):
            commands.set_payee(owner_id, wrong)
    with pytest.raises(BadRequest):
        commands.set_payee("nobody", "x")


def test_a_revoked_token_opens_nothing_and_ends_the_claims() -> None:
    bob, alice = registered(), registered("Alice")
    verified(claimed(bob))

    for device in (bob, alice):
        commands.revoke_token(device.node_id, by="owner", reason="stolen", now=later(60))

    assert queries.authenticate(bob.token) is None
    assert queries.node_claims(bob.node_id) == []
    assert queries.authenticate(commands.rotate_token(bob.node_id)) is not None
    assert replay.check().ok


def test_who_announces_a_leave_gets_nothing_new_and_gives_everything_back_then() -> None:
    bob = registered()
    claim = verified(claimed(bob))
    presence.recording_since(MORNING)
    commands.plan_leave(bob.node_id, later(3600), reason="travelling", now=later(60))
    presence.mark_seen(bob.node_id, later(3600))

    with pytest.raises(Leaving):
        claimed(bob, layer=1)
    early, due = tasks.step(later(3599)), tasks.step(later(3600))

    assert (early.left, due.left, tasks.step(later(3601)).left) == ((), (bob.node_id,), ())
    assert Event.objects.filter(name="claim-released").get().body["reason"] == "planned_leave"
    assert queries.claim(claim.claim_id) is None
    commands.cancel_leave(bob.node_id)
    assert claimed(bob, layer=1).state == "pending"
    assert replay.check().ok


@pytest.mark.parametrize("leaves_at", [later(-1), later(0) + timedelta(days=400), later(60).replace(tzinfo=None)])
def test_a_leave_is_planned_for_the_coming_year(leaves_at: object) -> None:
    with pytest.raises(BadRequest):
        commands.plan_leave(registered().node_id, leaves_at, now=MORNING)  # type: ignore[arg-type]


def test_an_erased_person_leaves_books_that_still_balance() -> None:
    bob = payable_device("Bob Example", payee="DE02 1203")
    owner_id = queries.node(bob.node_id).owner_id  # type: ignore[union-attr]
    before = check_books()

    erased = commands.erase_owner(owner_id, by="owner", reason="asked for it", now=later(100))

    assert erased == [bob.node_id]
    assert not OwnerProfile.objects.exists()
    assert not NodeProfile.objects.exists()
    assert queries.authenticate(bob.token) is None
    assert queries.node_claims(bob.node_id) == []
    after = check_books()
    assert (after.ok, after.accounts) == (True, before.accounts)
    assert replay.check().ok
    replay.rebuild()
    assert not NodeProfile.objects.exists()
    with pytest.raises(BadRequest, match="erased"):
        commands.rotate_token(bob.node_id)
    with pytest.raises(BadRequest):
        commands.erase_owner(owner_id, by="owner", reason="again")


def test_erasing_a_device_twice_is_harmless_and_an_unknown_one_is_refused() -> None:
    bob = registered()

    for _ in range(2):
        commands.erase_node(bob.node_id, by="owner", reason="asked for it")

    assert Event.objects.filter(name="node-erased").count() == 1
    with pytest.raises(UnknownNode):
        commands.erase_node("nobody", by="owner", reason="x")
