"""frontend/operator/node_acts.py: each act asks for a reason and is an event that names the operator."""

import pytest
from django.test import Client

from market import commands, queries
from market.models import Event
from tests.builders import Device, claimed, demo_build, payable_device, registered, verified
from tests.frontend.pages import Page

pytestmark = pytest.mark.django_db
ACTS = {
    "message": "node-messaged",
    "pause": "node-suspended",
    "drain": "node-leaving",
    "ban": "node-quarantined",
}


def act(client: Client, device: Device, name: str, **values: object) -> int:
    form = {"reason": "it answers late", "minutes": 5, **values}
    return client.post(f"/operator/nodes/{device.node_id}/{name}", form).status_code


@pytest.mark.parametrize(("name", "event"), ACTS.items())
def test_an_act_appends_an_event_with_who_and_why(operator: Client, name: str, event: str) -> None:
    bob = registered()

    assert act(operator, bob, name) == 302

    body = Event.objects.get(name=event).body
    assert body["by"] == "olga"
    assert "it answers late" in (body.get("reason"), body.get("text"))


@pytest.mark.parametrize("name", ACTS)
def test_an_act_without_a_reason_changes_nothing(operator: Client, name: str) -> None:
    bob = registered()
    before = Event.objects.count()

    assert act(operator, bob, name, reason="  ") == 400

    assert Event.objects.count() == before


@pytest.mark.parametrize("name", [*ACTS, "forgive"])
def test_the_form_says_what_the_act_does(operator: Client, name: str) -> None:
    bob = registered("Bob's phone")

    page = Page(operator.get(f"/operator/nodes/{bob.node_id}/{name}").content.decode())

    assert "Bob's phone" in page.text
    assert "Stored with your name, olga" in page.text


def test_a_pause_ends_claims_and_forgiving_lets_the_device_claim_again(operator: Client) -> None:
    commands.publish_build(demo_build())
    bob = registered()
    verified(claimed(bob))

    act(operator, bob, "pause")
    paused = queries.node_claims(bob.node_id)
    act(operator, bob, "forgive")

    assert paused == []
    assert claimed(bob).state == "pending"
    assert Event.objects.get(name="node-reinstated").body["reason"] == "it answers late"


def test_a_ban_voids_what_is_on_hold_and_forgiving_gives_it_back_if_asked(operator: Client) -> None:
    commands.publish_build(demo_build())
    bob = payable_device()
    earned = queries.balances(bob.node_id)["pending"]

    act(operator, bob, "ban")
    voided = queries.balances(bob.node_id)["pending"]
    act(operator, bob, "forgive", restore="on")

    assert (earned > 0, voided) == (True, 0)
    assert queries.balances(bob.node_id)["pending"] == earned


def test_forgiving_a_drained_device_lets_it_stay(operator: Client) -> None:
    bob = registered()

    act(operator, bob, "drain")
    leaving = queries.node(bob.node_id)
    act(operator, bob, "forgive")

    assert leaving is not None
    assert leaving.leaves_at is not None
    stayed = queries.node(bob.node_id)
    assert stayed is not None
    assert stayed.leaves_at is None


def test_only_acts_that_make_sense_are_offered(operator: Client) -> None:
    bob = registered()

    fresh = operator.get(f"/operator/nodes/{bob.node_id}").content.decode()
    act(operator, bob, "pause")
    paused = operator.get(f"/operator/nodes/{bob.node_id}").content.decode()

    assert "/pause" in fresh
    assert "/forgive" not in fresh
    assert "/pause" not in paused
    assert "/forgive" in paused


def test_what_the_market_refuses_is_shown_in_the_form(operator: Client) -> None:
    bob = registered()

    answer = operator.post(f"/operator/nodes/{bob.node_id}/message", {"reason": "bell \x07"})

    assert answer.status_code == 400
    assert Event.objects.filter(name="node-messaged").count() == 0


def test_unknown_acts_and_devices_are_404(operator: Client) -> None:
    bob = registered()

    assert operator.get(f"/operator/nodes/{bob.node_id}/explode").status_code == 404
    assert operator.post("/operator/nodes/nobody/ban", {"reason": "x"}).status_code == 404
