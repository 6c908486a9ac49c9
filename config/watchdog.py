"""Ends a Celery worker that has stopped consuming, so that whoever supervises it starts a fresh one.

After a reset of Redis, workers have been seen alive, connected and deaf. The sign: messages wait in a queue of this
worker, it has room for more, and yet nothing arrived for a while. Beat's canary makes sure that messages come.
"""

import logging
import os
import signal
import threading
import time
from typing import Any

import redis
from celery import bootsteps, signals
from celery.worker import state
from django.conf import settings

from config.broker import lists_of

logger = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
DEAF_SECONDS = 60.0
# Longest warm shutdown of a worker that may be stuck; afterwards the process ends at once.
EXIT_SECONDS = 30.0
EXIT_STATUS = 70


class Hearing:
    """When this process last received a task and since when it should have received one. Times: monotonic seconds."""

    def __init__(self, now: float) -> None:
        self.last_received = now
        self._waiting_since: float | None = None

    def received(self, now: float) -> None:
        self.last_received = now
        self._waiting_since = None

    def is_deaf(self, now: float, *, waiting: int, has_room: bool) -> bool:
        """`waiting`: messages in the queues of this worker. True once they waited DEAF_SECONDS beside free threads."""
        if not waiting or not has_room:
            self._waiting_since = None
            return False
        if self._waiting_since is None:
            self._waiting_since = now
        return now - self._waiting_since >= DEAF_SECONDS


class Watchdog(bootsteps.StartStopStep):  # type: ignore[misc]  # Celery's classes carry no types
    """The bootstep: one thread that looks every LOOK_SECONDS."""

    requires = ("celery.worker.components:Pool",)

    def __init__(self, parent: Any, **kwargs: Any) -> None:
        super().__init__(parent, **kwargs)
        self._stop = threading.Event()
        self._hearing = Hearing(time.monotonic())

    def start(self, parent: Any) -> None:
        signals.task_received.connect(self._on_received, weak=False)
        queues = list(parent.app.amqp.queues.consume_from)
        threading.Thread(target=self._watch, args=(queues, parent.concurrency), name="watchdog", daemon=True).start()

    def stop(self, parent: Any) -> None:
        self._stop.set()

    terminate = stop

    def _on_received(self, **_: object) -> None:
        self._hearing.received(time.monotonic())

    def _watch(self, queues: list[str], concurrency: int) -> None:
        with redis.Redis.from_url(settings.REDIS_URL, socket_timeout=LOOK_SECONDS) as client:
            while not self._stop.wait(LOOK_SECONDS):
                try:
                    waiting = sum(int(client.llen(name)) for queue in queues for name in lists_of(queue))
                except redis.RedisError as error:
                    # No Redis, no messages: the worker reconnects by itself.
                    logger.warning("the watchdog cannot ask Redis: %s", error)
                    continue
                has_room = len(state.reserved_requests) < concurrency
                if self._hearing.is_deaf(time.monotonic(), waiting=waiting, has_room=has_room):
                    self._end(waiting)

    def _end(self, waiting: int) -> None:
        logger.critical("%d messages wait but none arrived for %.0f s: this worker ends itself", waiting, DEAF_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(EXIT_SECONDS)
        os._exit(EXIT_STATUS)
