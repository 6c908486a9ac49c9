"""The Celery application: two queues, the timetable of beat, and what a worker starts beside its pool.

`backbone` carries generations, to the one worker that hosts the engine; `upkeep` carries everything else and is the
default. Both workers use the threads pool: `celery -A config worker -Q backbone --pool threads --concurrency N`.
Settings with the prefix CELERY_ live in `config/settings.py`.
"""

import os
from typing import Any

from celery import Celery, signals
from kombu.entity import Queue

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

from django.conf import settings

BACKBONE_QUEUE = "backbone"
UPKEEP_QUEUE = "upkeep"
QUEUES = (BACKBONE_QUEUE, UPKEEP_QUEUE)
CANARY_SECONDS = 10.0


def timetable() -> dict[str, dict[str, Any]]:
    """The beat schedule. Each message expires before the next but two is due: a stopped worker wakes to no backlog."""
    return {
        "market-upkeep": {
            "task": "market.upkeep",
            "schedule": settings.UPKEEP_SECONDS,
            "options": {"queue": UPKEEP_QUEUE, "expires": settings.UPKEEP_SECONDS * 2},
        },
        **{
            f"canary-{queue}": {
                "task": "config.canary",
                "schedule": CANARY_SECONDS,
                "args": (queue,),
                "options": {"queue": queue, "expires": CANARY_SECONDS * 2},
            }
            for queue in QUEUES
        },
    }


app = Celery("expertswarm")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.update(
    task_queues=[Queue(name) for name in QUEUES],  # type: ignore[no-untyped-call]
    task_default_queue=UPKEEP_QUEUE,
    task_create_missing_queues=False,
    task_routes={"inference.generate": {"queue": BACKBONE_QUEUE}},
    beat_schedule=timetable(),
)
app.autodiscover_tasks()
# Named, not imported: a process that only sends tasks must not load the engine.
app.steps["worker"].add("config.watchdog:Watchdog")
app.steps["worker"].add("inference.bootstep:Backbone")


@signals.worker_init.connect
def refuse_without_redis(**_: object) -> None:
    """A worker on the in-memory broker would wait for ever for messages that nobody can send it."""
    if not settings.REDIS_URL:
        raise SystemExit("REDIS_URL is not set: a worker needs the Redis of the server (see `manage.py up`).")
