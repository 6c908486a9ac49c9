"""A Redis broker that goes away must not end its workers, nor hold up what they had fetched.

`PatientQoS` repairs kombu's Redis transport. Measured (kombu of requirements.txt, a worker with running tasks while
Redis restarts): the lost connection is torn down first, then its unacknowledged messages are to be put back, or
acknowledged by tasks that end, through it; that raises AttributeError, which Celery calls unrecoverable, and the worker
ends. Without this repair a restart of Redis costs a restart of the backbone, and every running generation starts anew.

Messages that a worker had fetched but not begun when it lost the broker (or was killed) are lost to it; Redis would
hand them out again after hours. So a worker that has connected, at the start or again, asks for a rescue at once
(`AskForRescue`): every generation that nobody runs is queued again.
"""

import logging
from typing import Any

from celery import bootsteps
from kombu.transport import redis, virtual

logger = logging.getLogger(__name__)

# Of kombu's steps (0, 3, 6, 9).
FIRST, USUAL, LAST = 0, 3, 6


class PatientQoS(redis.QoS):
    """Neither puts back nor acknowledges messages through a connection that is gone."""

    def restore_unacked(self, client: Any = None) -> None:
        if self._is_gone():
            logger.warning("the broker is gone: %d messages are not put back now", len(self._delivered))
            self._delivered.clear()
            return
        super().restore_unacked(client)  # type: ignore[no-untyped-call]

    def ack(self, delivery_tag: str) -> None:
        if self._is_gone():
            # Redis will hand the message out once more, hours later; a task that has run does nothing then.
            virtual.QoS.ack(self, delivery_tag)  # type: ignore[no-untyped-call]
            return
        super().ack(delivery_tag)  # type: ignore[no-untyped-call]

    def _is_gone(self) -> bool:
        return self.channel.connection is None or self.channel.connection.client is None


def message_priority(priority: int) -> int:
    """A request's priority as the broker's: 0 comes first. Between the three kinds it is the queue that decides, within
    each the engine. The canary, a rescue and a retry have no priority, which is 0: they never wait behind requests."""
    return FIRST if priority > 0 else LAST if priority < 0 else USUAL


def lists_of(queue: str) -> list[str]:
    """The Redis lists that hold a queue's messages, one for each of the broker's priorities."""
    return [queue, *(f"{queue}{redis.Channel.sep}{step}" for step in redis.PRIORITY_STEPS if step)]


def repair_transport() -> None:
    """From now on channels of this process use `PatientQoS`."""
    redis.Channel.QoS = PatientQoS


class AskForRescue(bootsteps.StartStopStep):  # type: ignore[misc]  # Celery's classes carry no types
    """Part of Celery's consumer, which starts with every connection. Only for the worker that runs generations."""

    requires = ("celery.worker.consumer.tasks:Tasks",)
    QUEUE, TASK = "backbone", "inference.rescue"

    def include_if(self, parent: Any) -> bool:
        return self.QUEUE in parent.app.amqp.queues.consume_from

    def start(self, parent: Any) -> None:
        # Sent by name: this module must not load the engine. No patience: whatever is queued may have been lost.
        parent.app.send_task(self.TASK, kwargs={"patience_seconds": 0.0}, expires=60)
