"""market/commands/nodes.py."""

import json

import pytest

from market import commands, histories, queries, store
from market.errors import BadRequest, Suspended, UnknownNode
from market.models import Event, Node
from tests.builders import FINGERPRINT, MORNING, claimed, demo_build, registered, verified

pytestmark = pytest.mark.django_db


def test_a_registered_device_is_known_by_its_token() -> None:
    node_id, token = commands.register_node("Bob's phone", "ggml-0.25.3+avx2", 42_000_000)

    node = queries.authenticate(token)

    assert node == queries.node(node_id)
    assert node is not None
    assert (node.name, node.kernel_class, node.budget_bytes) == ("Bob's phone", "ggml-0.25.3+avx2", 42_000_000)
    assert not node.suspended


def test_the_token_is_stored_nowhere_and_the_name_in_no_event() -> None:
    _, token = commands.register_node("Bob's phone", "numpy")

    stored = json.dumps(list(Event.objects.values_list("body", flat=True))) + str(Node.objects.values())

    assert token not in stored
    assert "Bob" not in stored
    assert len(token) >= 43


@pytest.mark.parametrize("token", ["", "x", "x" * 129, "\udcff", "0" * 64])
def test_nobody_has_another_token(token: str) -> None:
    registered()

    assert queries.authenticate(token) is None


@pytest.mark.parametrize(
    ("name", "shown"),
    [("  Bob's \n\t phone ", "Bob's phone"), ("Bob’s Händy 📱", "Bob’s Händy 📱"), ("n" * 60, "n" * 60)],
)
def test_a_name_is_shown_on_one_line(name: str, shown: str) -> None:
    assert queries.authenticate(commands.register_node(name, "numpy")[1]).name == shown  # type: ignore[union-attr]


def test_a_device_without_a_name_gets_one() -> None:
    node_id, token = commands.register_node("", "numpy")

    assert queries.authenticate(token).name == f"device {node_id[:6]}"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "kernel_class", "budget"),
    [
        ("n" * 61, "numpy", None),
        ("bell\x07", "numpy", None),
        ("turned\u202e", "numpy", None),
        ("Bob", "", None),
        ("Bob", "two words", None),
        ("Bob", "k" * 121, None),
        ("Bob", "numpy", 0),
        ("Bob", "numpy", 1 << 51),
    ],
)
def test_it_refuses_names_classes_and_budgets_out_of_bounds(name: str, kernel_class: str, budget: int | None) -> None:
    with pytest.raises(BadRequest):
        commands.register_node(name, kernel_class, budget)

    assert store.last_position() == 0


def test_a_rotated_token_replaces_the_old_one_at_once() -> None:
    bob = registered()

    token = commands.rotate_token(bob.node_id)

    assert queries.authenticate(bob.token) is None
    assert queries.authenticate(token).node_id == bob.node_id  # type: ignore[union-attr]


def test_a_suspended_device_loses_its_claims_and_gets_no_new_ones_until_it_is_reinstated() -> None:
    commands.publish_build(demo_build())
    mallory = registered("Mallory")
    verified(claimed(mallory))
    claimed(mallory, layer=1)

    commands.suspend_node(mallory.node_id, reason="wrong answers", by="audit", now=MORNING)
    commands.suspend_node(mallory.node_id, reason="again", by="audit", now=MORNING)

    node = queries.authenticate(mallory.token)
    assert node is not None
    assert (node.suspended, node.suspended_reason) == (True, "wrong answers")
    assert queries.node_claims(mallory.node_id) == []
    assert queries.coverage(FINGERPRINT).sum() == 0
    with pytest.raises(Suspended, match="wrong answers"):
        claimed(mallory)
    commands.reinstate_node(mallory.node_id, by="operator")
    assert claimed(mallory).state == "pending"


def test_an_unknown_device_can_be_neither_suspended_nor_given_a_token() -> None:
    with pytest.raises(UnknownNode):
        commands.rotate_token("nobody")
    with pytest.raises(UnknownNode):
        commands.suspend_node("nobody", reason="x", by="y")
    with pytest.raises(UnknownNode):
        commands.reinstate_node("nobody", by="y")


def test_a_suspension_needs_a_reason() -> None:
    bob = registered()

    with pytest.raises(BadRequest, match="reason"):
        commands.suspend_node(bob.node_id, reason=" ", by="operator")


def test_an_operator_can_write_to_the_owner_and_the_words_are_an_event() -> None:
    bob = registered()

    commands.message_node(bob.node_id, "Your device answers late.", by="olga", now=MORNING)

    assert [(message.text, message.by) for message in histories.messages(bob.node_id)] == [
        ("Your device answers late.", "olga")
    ]
    with pytest.raises(BadRequest, match="reason"):
        commands.message_node(bob.node_id, " ", by="olga")


def test_an_operator_can_drain_a_device_and_is_named() -> None:
    commands.publish_build(demo_build())
    bob = registered()
    claimed(bob)

    commands.plan_leave(bob.node_id, MORNING, by="olga", reason="new hardware", now=MORNING)
    commands.end_planned_leaves(MORNING)

    leaving = Event.objects.get(name="node-leaving")
    assert (leaving.body["by"], leaving.body["reason"]) == ("olga", "new hardware")
    assert queries.node_claims(bob.node_id) == []
