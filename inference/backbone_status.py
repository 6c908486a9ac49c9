"""What each backbone says of itself, in Redis: one JSON text per boot that vanishes when the backbone does.

Pages, `/api/stats` and readiness checks read it; nothing is decided by it.
"""

import json
import time
from typing import Any

import redis

KEY_PREFIX = "backbone.status."
TTL_SECONDS = 6
PUBLISH_SECONDS = 1.0

Status = dict[str, Any]


def publish(client: "redis.Redis", boot: str, status: Status) -> None:
    client.set(KEY_PREFIX + boot, json.dumps({**status, "boot": boot, "at": time.time()}), ex=TTL_SECONDS)


def withdraw(client: "redis.Redis", boot: str) -> None:
    """Called at a clean stop, so that nobody waits for the text to expire."""
    client.delete(KEY_PREFIX + boot)


def alive_boots(client: "redis.Redis") -> set[str]:
    """The boots that spoke within the last `TTL_SECONDS`."""
    keys: Any = client.scan_iter(KEY_PREFIX + "*", count=100)
    return {key.decode().removeprefix(KEY_PREFIX) for key in keys}


def all_statuses(client: "redis.Redis") -> list[Status]:
    """The backbones that spoke within the last `TTL_SECONDS`, oldest boot first."""
    keys: Any = list(client.scan_iter(KEY_PREFIX + "*", count=100))
    texts: Any = client.mget(keys) if keys else []
    return sorted((json.loads(text) for text in texts if text), key=lambda status: float(status["started"]))
