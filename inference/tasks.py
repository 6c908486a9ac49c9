"""The Celery tasks of `inference`: they take ids and call functions, and running one twice is harmless."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

import redis
from celery import shared_task
from django.conf import settings
from django.db import InterfaceError, OperationalError, connection

from config.broker import message_priority
from inference import backbone_status, jobs, token_stream
from inference.errors import Draining, InferenceError, QueueFull
from inference.models import GenerationJob
from inference.token_stream import StreamedToken

if TYPE_CHECKING:
    from inference.node_host import NodeHost

logger = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_SECONDS = 1.0
LOST_MESSAGE_SECONDS = 60.0


@shared_task(name="inference.generate", ignore_result=True)
def generate(generation_id: str) -> None:
    """Runs one generation to its end on this process's engine, resuming what an earlier attempt wrote."""
    # Imported here: only the process that hosts the engine loads llama.cpp.
    from inference.node_host import NodeHost

    host = NodeHost.current()
    if host is None:
        ask_again(generation_id)
        return
    with HELD.one(generation_id) as is_first:
        job = patiently(lambda: take(host, generation_id)) if is_first else None
        if job is None:
            return
        try:
            run(host, job)
        except Exception as error:
            # As long as its backbone lives nobody rescues what it holds for running: its reader must hear of it.
            logger.exception("generation %s failed", generation_id)
            host.engine.cancel(generation_id)
            close_failed(host, job, f"internal error: {type(error).__name__}")


class Held:
    """What this process has taken, or is about to take: a message may be delivered twice."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._lock = threading.Lock()

    @contextmanager
    def one(self, generation_id: str) -> Iterator[bool]:
        """Whether nobody else holds it; until the end of the block."""
        with self._lock:
            is_first = generation_id not in self._ids
            self._ids.add(generation_id)
        try:
            yield is_first
        finally:
            if is_first:
                with self._lock:
                    self._ids.discard(generation_id)


HELD = Held()


def take(host: "NodeHost", generation_id: str) -> GenerationJob | None:
    """Claims the next attempt for this process, also one of its own that was claimed without its hearing of it."""
    others = backbone_status.alive_boots(host.redis) - {host.boot}
    return jobs.take_job(generation_id, boot=host.boot, alive=others)


def run(host: "NodeHost", job: GenerationJob) -> None:
    """One attempt, from what earlier ones wrote to its end, or back into the queue."""
    from inference.engine import STOPPED
    from inference.generation import GenerationRequest

    generation_id = str(job.pk)
    earlier = [token.token for token in patiently(lambda: token_stream.stored(host.redis, generation_id))]
    request = GenerationRequest(
        request_id=generation_id,
        prompt=tuple(job.prompt_tokens),
        sampling=jobs.sampling_of(job),
        resumed=tuple(token for token in earlier if token >= 0),
        priority=job.priority,
        trusted_only=patiently(lambda: jobs.is_trusted_only(job)),
    )
    ended = threading.Event()
    ends: list[tuple[str, int, str]] = []

    def on_end(finish: str, generated: int, error: str) -> None:
        ends.append((finish, generated, error))
        ended.set()

    try:
        host.submit(generation_id, job.attempt, request, on_end)
    except (Draining, QueueFull):
        give_back(job)
        return
    except InferenceError as error:
        close_failed(host, job, f"{error.code}: {error}")
        return
    if patiently(lambda: token_stream.is_cancelled(host.redis, generation_id)):
        host.engine.cancel(generation_id)
    connection.close()  # a generation takes long: hold no database connection meanwhile
    ended.wait()
    finish, generated, reason = ends[0]
    if reason == STOPPED:
        give_back(job)
    else:
        patiently(lambda: jobs.finish_job(job, finish=finish, generated=generated, error=reason))


def give_back(job: GenerationJob) -> None:
    """Another backbone, or this one when it can, goes on with it."""
    patiently(lambda: jobs.release_job(job))
    ask_again(str(job.pk))


def ask_again(generation_id: str) -> None:
    generate.apply_async((generation_id,), countdown=RETRY_SECONDS)


def close_failed(host: "NodeHost", job: GenerationJob, reason: str) -> None:
    """Tells the reader, and closes the job."""
    index = sum(token.token >= 0 for token in patiently(lambda: token_stream.stored(host.redis, str(job.pk))))
    failed = StreamedToken(job.attempt, index, -1, "", "error", error=reason)
    patiently(lambda: token_stream.append(host.redis, [(str(job.pk), failed)]))
    patiently(lambda: jobs.finish_job(job, finish="error", generated=index, error=reason))


def patiently(act: Callable[[], T], patience_seconds: float = 600.0) -> T:
    """Does what nobody else would do later, also when Redis or the database is away for a while.

    A generation that was taken but not begun, or has ended but is not closed, would count as running for as long as its
    backbone lives.
    """
    until = time.monotonic() + patience_seconds
    while True:
        try:
            return act()
        except (OperationalError, InterfaceError, redis.RedisError) as error:
            if time.monotonic() > until:
                raise
            logger.warning("a store is away; trying again: %s", error)
            connection.close()
            time.sleep(RETRY_SECONDS)


@shared_task(name="inference.rescue", ignore_result=True)
def rescue(patience_seconds: float = LOST_MESSAGE_SECONDS) -> int:
    """Queues generations again whose backbone is gone or whose message may be lost; returns how many.

    patience_seconds: how old a queued generation is before its message counts as lost; 0: messages were lost just now.
    """
    before = datetime.now(UTC) - timedelta(seconds=patience_seconds)
    client = redis.Redis.from_url(settings.REDIS_URL)
    try:
        orphans = jobs.orphaned_jobs(alive=backbone_status.alive_boots(client))
        lost = [
            waiting
            for waiting in jobs.waiting_jobs(queued_before=before)
            if not patience_seconds or token_stream.may_be_asked_again(client, str(waiting[0]), patience_seconds)
        ]
    finally:
        client.close()
    for job_id in orphans:
        generate.delay(str(job_id))
    for job_id, priority in lost:
        # Most of them only wait: at their own priority, or the canary would wait behind them.
        generate.apply_async((str(job_id),), priority=message_priority(priority))
    if orphans:
        logger.warning("%d generations had lost their backbone and are queued again", len(orphans))
    return len(orphans) + len(lost)


@shared_task(name="inference.prune", ignore_result=True)
def prune() -> int:
    """Deletes generations that ended longer ago than GENERATION_KEEP_SECONDS; returns how many."""
    deleted = jobs.prune_jobs(ended_before=datetime.now(UTC) - timedelta(seconds=settings.GENERATION_KEEP_SECONDS))
    if deleted:
        logger.info("%d generations that ended long ago are deleted", deleted)
    return deleted
