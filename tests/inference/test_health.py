"""inference/health.py and `/healthz`, `/readyz`: each part's truth, asked now."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from django.core.cache import cache
from django.db import DatabaseError, connection
from django.test import Client
from pytest_django import Settings

from config.tasks import canary
from inference import backbone_status, health
from tests.inference.statuses import backbone

pytestmark = pytest.mark.django_db


@pytest.fixture
def healthy(redis_database: str, settings: Settings) -> Iterator["redis.Redis"]:
    """A server whose every part works."""
    settings.REDIS_URL = redis_database
    cache.clear()
    for queue in ("backbone", "upkeep"):
        canary(queue)
    with redis.Redis.from_url(redis_database) as client:
        backbone_status.publish(client, "b1", backbone())
        yield client


def readiness(client: Client) -> tuple[int, dict[str, Any]]:
    response = client.get("/readyz")
    body = response.json()
    assert body["ready"] == (response.status_code == 200)
    assert body["ready"] == all(part["ready"] for part in body["parts"].values())
    return response.status_code, body["parts"]


def test_a_server_whose_every_part_works_is_ready(healthy: "redis.Redis", client: Client) -> None:
    status, parts = readiness(client)

    assert status == 200
    assert set(parts) == {"database", "redis", "celery", "backbone", "relay"}
    assert parts["relay"]["connected"] == 1


def test_without_redis_the_database_is_still_told_apart(settings: Settings, client: Client) -> None:
    settings.REDIS_URL = "unix:///nowhere/redis.sock"

    status, parts = readiness(client)

    assert status == 503
    assert parts["database"]["ready"] is True
    assert parts["redis"]["ready"] is False
    assert "nowhere" not in str(parts)


@pytest.mark.parametrize("age", [None, 100.0])
def test_a_queue_whose_canary_is_old_or_absent_is_named(
    healthy: "redis.Redis", client: Client, age: float | None
) -> None:
    if age is None:
        cache.delete("canary:backbone")
    else:
        cache.set("canary:backbone", time.time() - age)

    status, parts = readiness(client)

    assert status == 503
    assert parts["celery"]["what"] == "no task of queue backbone has run lately"
    assert parts["backbone"]["ready"] is True


def test_a_backbone_that_is_silent_takes_its_relay_along(healthy: "redis.Redis", client: Client) -> None:
    backbone_status.withdraw(healthy, "b1")

    status, parts = readiness(client)

    assert status == 503
    assert not parts["backbone"]["ready"]
    assert not parts["relay"]["ready"]


@pytest.mark.parametrize("connected", [[False], [True, False], []])
def test_a_backbone_that_misses_a_relay_is_not_ready(
    healthy: "redis.Redis", client: Client, connected: list[bool]
) -> None:
    backbone_status.publish(healthy, "b1", backbone(relays_connected=connected))

    status, parts = readiness(client)

    assert status == 503
    assert parts["relay"]["what"] == f"the backbone is connected to {sum(connected)} of {len(connected)} relays"


def test_a_database_that_fails_is_said_without_its_words(
    healthy: "redis.Redis", client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> Any:
        raise DatabaseError("password of db.example is wrong")

    monkeypatch.setattr(connection, "cursor", fail)

    parts = health.parts()

    assert parts["database"].to_json() == {"ready": False, "what": "does not answer (DatabaseError)"}
    assert parts["redis"].ready


def test_a_process_that_answers_is_alive_whatever_else_is_down(settings: Settings, client: Client) -> None:
    settings.REDIS_URL = "unix:///nowhere/redis.sock"

    response = client.get("/healthz")

    assert (response.status_code, response.json()) == (200, {"alive": True})
