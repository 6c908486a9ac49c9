"""The canary: a task that beat sends through every queue, so that a worker which no longer consumes is noticed."""

import time

from celery import shared_task
from django.core.cache import cache

CANARY_KEY = "canary:{queue}"
CANARY_KEPT_SECONDS = 3600


@shared_task(name="config.canary")
def canary(queue: str) -> None:
    cache.set(CANARY_KEY.format(queue=queue), time.time(), CANARY_KEPT_SECONDS)


def canary_age_seconds(queue: str, now: float) -> float | None:
    """Seconds since a task of this queue last ran; None: none ran in the last hour. `now` is a Unix time."""
    seen: float | None = cache.get(CANARY_KEY.format(queue=queue))
    return None if seen is None else max(0.0, now - seen)
