"""inference/backbone_status.py: who lives is found without walking through the store."""

import json
from collections.abc import Iterator

import pytest
import redis

from inference import backbone_status
from tests.inference.statuses import backbone


@pytest.fixture
def client(redis_database: str) -> Iterator["redis.Redis"]:
    with redis.Redis.from_url(redis_database) as connection:
        yield connection


def test_living_backbones_are_listed_oldest_first(client: "redis.Redis") -> None:
    backbone_status.publish(client, "young", backbone("young", started=2.0))
    backbone_status.publish(client, "old", backbone("old", started=1.0))

    assert [status["boot"] for status in backbone_status.all_statuses(client)] == ["old", "young"]
    assert backbone_status.alive_boots(client) == {"old", "young"}


def test_a_backbone_that_fell_silent_or_withdrew_is_gone(client: "redis.Redis") -> None:
    for boot in ("silent", "left", "alive"):
        backbone_status.publish(client, boot, backbone(boot))
    client.delete(backbone_status.KEY_PREFIX + "silent")  # its text expired
    backbone_status.withdraw(client, "left")

    assert backbone_status.alive_boots(client) == {"alive"}


def test_the_list_forgets_old_boots(client: "redis.Redis") -> None:
    client.zadd(backbone_status.BOOTS_KEY, {"ancient": 5.0})

    backbone_status.publish(client, "new", backbone("new"))

    assert client.zrange(backbone_status.BOOTS_KEY, 0, -1) == [b"new"]


def test_nobody_is_an_empty_list(client: "redis.Redis") -> None:
    assert backbone_status.all_statuses(client) == []


def test_the_latest_words_count_and_expire(client: "redis.Redis") -> None:
    backbone_status.publish(client, "b1", backbone(sessions=1))
    backbone_status.publish(client, "b1", backbone(sessions=2))

    (status,) = backbone_status.all_statuses(client)

    assert status["sessions"] == 2
    assert 0 < client.ttl(backbone_status.KEY_PREFIX + "b1") <= backbone_status.TTL_SECONDS
    assert json.loads(json.dumps(status)) == status
