"""frontend/operator/nodes.py: the list of devices, a device's page, the QR code."""

import re

import pytest
import redis
from django.test import Client

from market import commands, queries
from tests.builders import MORNING, STAGES, claimed, demo_build, later, registered, stage_build, stage_device, verified
from tests.frontend.pages import Page

pytestmark = pytest.mark.django_db


def names(client: Client, query: str = "") -> list[str]:
    return [row[0] for row in Page(client.get(f"/operator/nodes{query}").content.decode()).table("nodes")]


def test_an_empty_list_says_so(operator: Client) -> None:
    assert "No device has registered yet." in Page(operator.get("/operator/nodes").content.decode()).text


def test_devices_can_be_searched_by_name_number_and_state(operator: Client) -> None:
    bob, mallory = registered("Bob's phone"), registered("Mallory")
    commands.suspend_node(mallory.node_id, reason="wrong answers", by="olga", now=MORNING)

    assert names(operator, "?q=bob") == ["Bob's phone"]
    assert names(operator, f"?q={bob.node_id}") == ["Bob's phone"]
    assert names(operator, "?q=wrong") == names(operator, "?state=paused") == ["Mallory"]
    assert "No device fits." in Page(operator.get("/operator/nodes?q=nobody").content.decode()).text


def test_devices_can_be_sorted_both_ways_by_every_column(operator: Client) -> None:
    commands.publish_build(demo_build(), now=MORNING)
    small, big = registered("small"), registered("big", now=later(60))
    verified(claimed(small, 0, 0, 2))
    verified(claimed(big, 1, 0, 8))

    for key in ("experts", "memory", "registered"):
        assert names(operator, f"?sort={key}") == ["small", "big"], key
        assert names(operator, f"?sort=-{key}") == ["big", "small"], key
    assert names(operator, "?sort=name") == ["big", "small"]
    assert sorted(names(operator, "?sort=nonsense")) == ["big", "small"]


def test_a_long_list_has_pages_that_keep_search_and_order(operator: Client) -> None:
    for number in range(55):
        registered(f"phone {number:02}")

    first, second = names(operator, "?sort=name&q=phone"), names(operator, "?sort=name&q=phone&page=2")

    assert (len(first), second) == (50, [f"phone {number}" for number in range(50, 55)])
    source = operator.get("/operator/nodes?sort=name&q=phone").content.decode()
    assert re.search(r'href="\?sort=name&amp;q=phone&amp;page=2"', source)


def test_the_latency_of_a_device_is_what_a_backbone_measured(operator: Client, swarm: "redis.Redis") -> None:
    from inference import backbone_status
    from tests.inference.statuses import backbone

    bob = registered()
    backbone_status.publish(swarm, "b1", backbone(owners={bob.node_id: {"seconds": 0.25, "answers": 3}}))

    row = Page(operator.get("/operator/nodes").content.decode()).table("nodes")[0]

    assert row[7] == "250 ms"


def test_stages_are_told_from_workers_in_the_list_and_on_their_page(operator: Client) -> None:
    commands.publish_build(demo_build(), now=MORNING)
    commands.publish_build(stage_build(), now=MORNING)
    registered("Bob's phone")
    alice = stage_device("Alice's server")
    claim = verified(claimed(alice, 0, 4, 8))
    work = [(claim.claim_id, 0, 1000)]
    commands.credit_work("one window", STAGES, alice.node_id, MORNING, later(60), work, now=later(60))

    page = Page(operator.get(f"/operator/nodes/{alice.node_id}").content.decode())

    rows = Page(operator.get("/operator/nodes?sort=role").content.decode()).table("nodes")
    assert [row[:2] for row in rows] == [["Alice's server", "stage"], ["Bob's phone", "worker"]]
    assert [row[4] for row in rows] == ["4 units", "0"]
    assert names(operator, "?role=stage") == ["Alice's server"]
    assert names(operator, "?role=worker") == ["Bob's phone"]
    assert "units 4–7" in page.text
    assert "1,000 tokens, each through one unit" in page.text


def test_a_devices_page_tells_its_history_with_who_and_why(operator: Client) -> None:
    commands.publish_build(demo_build(), now=MORNING)
    bob = registered("Bob's phone")
    verified(claimed(bob))
    commands.message_node(bob.node_id, "Are you on battery?", by="olga", now=later(10))
    commands.suspend_node(bob.node_id, reason="too slow", by="olga", now=later(20))

    page = Page(operator.get(f"/operator/nodes/{bob.node_id}").content.decode())

    for event in ("node-registered", "claim-granted", "replica-verified", "node-messaged", "node-suspended"):
        assert event in page.text
    assert "reason: too slow, by: olga" in page.text
    assert "Are you on battery?" in page.text
    assert "claim-released" in page.text


def test_a_devices_page_never_shows_digests_of_tokens(operator: Client) -> None:
    bob = registered()
    digest = queries.token_sha256(bob.token)

    assert digest not in operator.get(f"/operator/nodes/{bob.node_id}").content.decode()


def test_an_unknown_device_is_404(operator: Client) -> None:
    assert operator.get("/operator/nodes/nobody").status_code == 404


def test_a_phone_is_added_by_a_code_that_is_shown_once(operator: Client) -> None:
    shown = operator.post("/operator/nodes/add", {"name": "Phil's phone"}).content.decode()
    again = operator.get("/operator/nodes/add").content.decode()

    token = re.search(r"#token=([\w-]+)", shown)
    assert token is not None
    node = queries.authenticate(token[1])
    assert node is not None
    assert node.name == "Phil's phone"
    assert 'class="qr"' in shown
    assert "#token=" not in again


def test_a_name_that_cannot_be_shown_is_refused(operator: Client) -> None:
    answer = operator.post("/operator/nodes/add", {"name": "x" * 61})

    assert answer.status_code == 400
    assert "60 printable characters" in answer.content.decode()
