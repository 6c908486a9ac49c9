"""The Celery application: two queues, the timetable of beat, and what a worker starts beside its pool.

`backbone` carries generations, to the one worker that hosts the engine; `upkeep` carries everything else and is the
default. Both workers use the threads pool: `celery -A config worker -Q backbone --pool threads --concurrency N`.
Settings with the prefix CELERY_ live in `config/settings.py`.
"""

import os
from typing import Any

from celery import Celery, signals
from kombu.entity import Exchange, Queue

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

from django.conf import settings

from config import log_context
from config.broker import repair_transport

BACKBONE_QUEUE = "backbone"
UPKEEP_QUEUE = "upkeep"
QUEUES = (BACKBONE_QUEUE, UPKEEP_QUEUE)
CANARY_SECONDS = 10.0
RESCUE_SECONDS = 5.0
SAMPLE_SECONDS = 5.0
PRUNE_SECONDS = 600.0


def entry(task: str, seconds: float, queue: str, *arguments: object) -> dict[str, Any]:
    """A line of the beat schedule. Its messages expire soon: a worker that was stopped wakes to no backlog."""
    options = {"queue": queue, "expires": 2 * seconds}
    return {"task": task, "schedule": seconds, "args": arguments, "options": options}


def timetable() -> dict[str, dict[str, Any]]:
    """Everything that happens by the clock: see the table of timers in docs/deploy.md."""
    return {
        "market-upkeep": entry("market.upkeep", settings.UPKEEP_SECONDS, UPKEEP_QUEUE),
        "market-check-ledger": entry("market.check_ledger", settings.LEDGER_CHECK_SECONDS, UPKEEP_QUEUE),
        "frontend-sample": entry("frontend.sample", SAMPLE_SECONDS, UPKEEP_QUEUE),
        "inference-rescue": entry("inference.rescue", RESCUE_SECONDS, UPKEEP_QUEUE),
        "inference-prune": entry("inference.prune", PRUNE_SECONDS, UPKEEP_QUEUE),
        **{f"canary-{queue}": entry("config.canary", CANARY_SECONDS, queue, queue) for queue in QUEUES},
    }


def queue(name: str) -> Queue:
    """A queue with an exchange of its own: on Celery's default one, each message would reach every queue."""
    return Queue(name, Exchange(name), routing_key=name)  # type: ignore[no-untyped-call]


repair_transport()
app = Celery("expertswarm")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.update(
    task_queues=[queue(name) for name in QUEUES],
    task_default_queue=UPKEEP_QUEUE,
    task_create_missing_queues=False,
    task_routes={"inference.generate": {"queue": BACKBONE_QUEUE}},
    beat_schedule=timetable(),
)
app.autodiscover_tasks()
# Named, not imported: a process that only sends tasks must not load the engine.
app.steps["worker"].add("config.watchdog:Watchdog")
app.steps["worker"].add("inference.bootstep:Backbone")
app.steps["consumer"].add("config.broker:AskForRescue")


@signals.worker_init.connect
def refuse_without_redis(**_: object) -> None:
    """A worker on the in-memory broker would wait for ever for messages that nobody can send it."""
    if not settings.REDIS_URL:
        raise SystemExit("REDIS_URL is not set: a worker needs the Redis of the server (see `manage.py up`).")


@signals.worker_ready.connect
def sing_at_once(sender: Any, **_: object) -> None:
    """A fresh worker sends itself the canary, so that `/readyz` need not wait for beat's first one."""
    for name in sender.app.amqp.queues.consume_from:
        sender.app.send_task("config.canary", args=(name,), queue=name, expires=2 * CANARY_SECONDS)


@signals.task_prerun.connect
def name_in_log(task_id: str, task: Any, args: Any, **_: object) -> None:
    """Log lines of this thread say which task they belong to."""
    log_context.bind(task=task.name, task_id=task_id)
    if task.name == "inference.generate" and args:
        log_context.bind(generation_id=str(args[0]))


@signals.task_postrun.connect
def forget_in_log(**_: object) -> None:
    log_context.forget("task", "task_id", "generation_id")
