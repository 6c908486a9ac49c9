"""market/node_list.py: every device in figures, in a handful of queries."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from market import commands, node_list
from tests.builders import MORNING, Why, claimed, demo_build, later, payable_device, registered, verified

pytestmark = pytest.mark.django_db
WHY: Why = {"by": "olga", "reason": "tested"}


def states() -> dict[str, str]:
    return {line.name: line.state for line in node_list.node_lines()}


def test_a_device_is_in_the_state_that_it_is_in() -> None:
    commands.publish_build(demo_build(), now=MORNING)
    working, waiting, _ = registered("working"), registered("waiting"), registered("away")
    verified(claimed(working, 0))
    claimed(waiting, 1)
    commands.suspend_node(registered("paused").node_id, **WHY)
    commands.quarantine_node(registered("banned").node_id, **WHY)
    commands.plan_leave(registered("leaving").node_id, later(3600), now=MORNING)

    assert all(name == state for name, state in states().items())
    assert len(states()) == 6


def test_figures_of_a_device_are_sums_of_its_claims_and_accounts() -> None:
    commands.publish_build(demo_build(), now=MORNING)
    bob = payable_device("Bob")
    claimed(bob, layer=3, first=0, last=4)

    line = node_list.node_line(bob.node_id)

    assert line is not None
    assert (line.slices, line.experts, line.size_bytes) == (2, 12, 12 * 110_592)
    assert line.earned_microcredits > 0
    assert [line] == node_list.node_lines()


def test_the_number_of_queries_does_not_grow_with_the_devices() -> None:
    counts = []
    for _ in range(2):
        for number in range(5):
            registered(f"device {number}")
        with CaptureQueriesContext(connection) as asked:
            node_list.node_lines()
        counts.append(len(asked))

    assert counts[0] == counts[1]


def test_banned_devices_are_named_and_unknown_ones_are_none() -> None:
    commands.quarantine_node(registered("Mallory").node_id, **WHY)
    registered("Bob")

    assert node_list.banned_names() == ["Mallory"]
    assert node_list.node_line("nobody") is None
