"""Whether this server can do its work, part by part: what `/readyz` tells load balancers and people.

Each check asks the part itself, now. A part that cannot be asked is not ready; no check raises.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import redis
from django.conf import settings
from django.db import DatabaseError, connection

from config.celery import CANARY_SECONDS, QUEUES
from config.tasks import canary_age_seconds
from inference import backbone_status
from inference.backbone_status import Status

logger = logging.getLogger(__name__)

# Two canaries may be late or lost.
CANARY_OLD_SECONDS = 3 * CANARY_SECONDS + 5


@dataclass(frozen=True)
class Part:
    """One part's truth. what: why it is not ready, or how it is; no addresses and no passwords."""

    ready: bool
    what: str
    details: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"ready": self.ready, "what": self.what, **self.details}


def parts() -> dict[str, Part]:
    """Every part by its name."""
    statuses, store = _redis()
    return {
        "database": _guarded(_database, DatabaseError),
        "redis": store,
        "celery": _guarded(_celery, redis.RedisError),
        "backbone": _backbone(statuses),
        "relay": _relay(statuses),
    }


def _guarded(check: Callable[[], Part], failure: type[Exception]) -> Part:
    try:
        return check()
    except failure as error:
        logger.warning("not ready: %s", error)
        return Part(False, f"does not answer ({type(error).__name__})")


def _database() -> Part:
    started = time.monotonic()
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM django_migrations")
        cursor.fetchone()
    return Part(True, "answers", {"seconds": round(time.monotonic() - started, 4)})


def _redis() -> tuple[list[Status], Part]:
    if not settings.REDIS_URL:
        return [], Part(False, "REDIS_URL is not set")
    started = time.monotonic()
    try:
        with redis.Redis.from_url(settings.REDIS_URL, **settings.REDIS_ANSWER_OPTIONS) as client:
            statuses = backbone_status.all_statuses(client)
    except redis.RedisError as error:
        logger.warning("not ready: %s", error)
        return [], Part(False, f"does not answer ({type(error).__name__})")
    return statuses, Part(True, "answers", {"seconds": round(time.monotonic() - started, 4)})


def _celery() -> Part:
    """Both queues are consumed: their last canary is young."""
    ages = {queue: canary_age_seconds(queue, time.time()) for queue in QUEUES}
    silent = [queue for queue, age in ages.items() if age is None or age > CANARY_OLD_SECONDS]
    details = {"canary_age_seconds": {queue: age and round(age, 1) for queue, age in ages.items()}}
    if silent:
        return Part(False, f"no task of queue {' and '.join(silent)} has run lately", details)
    return Part(True, "both queues are consumed", details)


def _backbone(statuses: list[Status]) -> Part:
    if not statuses:
        return Part(False, "no backbone has spoken within the last seconds", {"alive": 0})
    return Part(True, "alive", {"alive": len(statuses)})


def _relay(statuses: list[Status]) -> Part:
    """Some backbone is connected to every relay that it knows."""
    states = [list(status.get("relays_connected", [])) for status in statuses]
    connected, known = max(((sum(state), len(state)) for state in states), default=(0, 0))
    details = {
        "connected": connected,
        "known": known,
        "sessions": sum(status.get("sessions", 0) for status in statuses),
    }
    if not known or connected < known:
        return Part(False, f"the backbone is connected to {connected} of {known} relays", details)
    return Part(True, "connected", details)
