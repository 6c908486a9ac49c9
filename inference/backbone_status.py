"""What each backbone says of itself, in Redis: one JSON text per boot that vanishes when the backbone does.

Pages, `/api/stats` and readiness checks read it; nothing is decided by it.
"""

import json
import time
from typing import Any

import redis

# Who has spoken when, as a sorted set: looking for keys by a pattern would walk through every key of the store.
BOOTS_KEY = "backbone.boots"
KEY_PREFIX = "backbone.status."
TTL_SECONDS = 6
PUBLISH_SECONDS = 1.0

Status = dict[str, Any]


def publish(client: "redis.Redis", boot: str, status: Status) -> None:
    now = time.time()
    with client.pipeline() as pipeline:
        pipeline.set(KEY_PREFIX + boot, json.dumps({**status, "boot": boot, "at": now}), ex=TTL_SECONDS)
        pipeline.zadd(BOOTS_KEY, {boot: now})
        pipeline.zremrangebyscore(BOOTS_KEY, "-inf", now - 10 * TTL_SECONDS)
        pipeline.execute()


def withdraw(client: "redis.Redis", boot: str) -> None:
    """Called at a clean stop, so that nobody waits for the text to expire."""
    client.zrem(BOOTS_KEY, boot)
    client.delete(KEY_PREFIX + boot)


def alive_boots(client: "redis.Redis") -> set[str]:
    """The boots that spoke within the last `TTL_SECONDS`."""
    return {str(status["boot"]) for status in all_statuses(client)}


def all_statuses(client: "redis.Redis") -> list[Status]:
    """The backbones that spoke within the last `TTL_SECONDS`, oldest boot first.

    Redis decides by expiring the texts: clocks of other machines may differ.
    """
    boots: Any = client.zrange(BOOTS_KEY, 0, -1)
    texts: Any = client.mget([KEY_PREFIX + boot.decode() for boot in boots]) if boots else []
    return sorted((json.loads(text) for text in texts if text), key=lambda status: float(status["started"]))
