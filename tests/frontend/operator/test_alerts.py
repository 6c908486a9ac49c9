"""frontend/operator/alerts.py: what needs a person, and what to do about it."""

from datetime import timedelta

import pytest
import redis
from django.test import Client
from django.utils import timezone

from market import commands
from market.policy import Policy
from tests.builders import MORNING, Why, claimed, demo_build, registered, verified
from tests.frontend.pages import Page

pytestmark = pytest.mark.django_db
WHY: Why = {"by": "olga", "reason": "tested"}


def text(client: Client) -> str:
    return Page(client.get("/operator/alerts").content.decode()).text


def test_parts_that_are_not_ready_are_urgent_and_say_what_to_do(operator: Client) -> None:
    shown = text(operator)

    assert "Urgent: Not ready: redis" in shown
    assert "Look at the Redis server and REDIS_URL." in shown
    assert "Urgent: Not ready: backbone" in shown


def test_experts_that_nobody_holds_and_those_below_the_target_are_told(operator: Client, swarm: "redis.Redis") -> None:
    commands.publish_build(demo_build(), now=MORNING)
    commands.change_policy(Policy(target_replicas=2), **WHY)
    verified(claimed(registered(), 0, 0, 8))

    shown = text(operator)

    assert "248 of 256 experts of demo are held by nobody" in shown
    assert "8 experts of demo have fewer than the 2 replicas" in shown


def test_a_banned_device_is_named(operator: Client, swarm: "redis.Redis") -> None:
    commands.quarantine_node(registered("Mallory").node_id, **WHY)

    assert "1 device is banned: Mallory" in text(operator)


def test_a_budget_that_is_reserved_is_told(operator: Client, swarm: "redis.Redis") -> None:
    commands.publish_build(demo_build(), now=MORNING)
    cap = claimed(registered(), 0, 0, 8).cap_microcredits_per_hour
    commands.change_policy(Policy(budget_microcredits_per_hour=cap), **WHY)

    assert "100% of the hourly budget is reserved" in text(operator)


def test_an_incident_is_told_while_it_lasts(operator: Client, swarm: "redis.Redis") -> None:
    now = timezone.now()
    commands.declare_incident(now - timedelta(hours=1), now + timedelta(hours=1), **WHY)

    assert "nobody is punished: tested" in text(operator)


def test_the_fragment_is_the_list_alone(operator: Client) -> None:
    source = operator.get("/operator/alerts/live").content.decode()

    assert source.startswith('<div id="alerts"')
    assert "<html" not in source
