"""The Celery tasks of `inference`: they take ids and call functions, and running one twice is harmless."""

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import redis
from celery import shared_task
from django.conf import settings
from django.db import InterfaceError, OperationalError, connection

from inference import backbone_status, jobs, token_stream
from inference.errors import Draining, InferenceError, QueueFull
from inference.token_stream import StreamedToken

logger = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
LOST_MESSAGE_SECONDS = 60.0


@shared_task(name="inference.generate", ignore_result=True)
def generate(generation_id: str) -> None:
    """Runs one generation to its end on this process's engine, resuming what an earlier attempt wrote."""
    # Imported here: only the process that hosts the engine loads llama.cpp.
    from inference.engine import STOPPED
    from inference.generation import GenerationRequest
    from inference.node_host import NodeHost

    host = NodeHost.current()
    if host is None:
        generate.apply_async((generation_id,), countdown=RETRY_SECONDS)
        return
    job = jobs.take_job(generation_id, boot=host.boot, alive=backbone_status.alive_boots(host.redis))
    if job is None:
        return
    earlier = [token for token in token_stream.stored(host.redis, generation_id) if token.token >= 0]
    request = GenerationRequest(
        request_id=generation_id,
        prompt=tuple(job.prompt_tokens),
        sampling=jobs.sampling_of(job),
        resumed=tuple(token.token for token in earlier),
        priority=job.priority,
        trusted_only=jobs.is_trusted_only(job),
    )
    ended = threading.Event()
    ends: list[tuple[str, int, str]] = []

    def on_end(finish: str, generated: int, error: str) -> None:
        ends.append((finish, generated, error))
        ended.set()

    try:
        host.submit(generation_id, job.attempt, request, on_end)
    except (Draining, QueueFull):
        jobs.release_job(job)
        generate.apply_async((generation_id,), countdown=RETRY_SECONDS)
        return
    except InferenceError as error:
        failed = StreamedToken(job.attempt, len(earlier), -1, "", "error", error=f"{error.code}: {error}")
        token_stream.append(host.redis, [(generation_id, failed)])
        jobs.finish_job(job, finish="error", generated=len(earlier), error=failed.error)
        return
    if token_stream.is_cancelled(host.redis, generation_id):
        host.engine.cancel(request.request_id)
    connection.close()  # a generation takes long: hold no database connection meanwhile
    ended.wait()
    finish, generated, reason = ends[0]
    if reason == STOPPED:
        jobs.release_job(job)
        generate.apply_async((generation_id,), countdown=RETRY_SECONDS)
        return
    patiently(lambda: jobs.finish_job(job, finish=finish, generated=generated, error=reason))


def patiently(write: Callable[[], object], patience_seconds: float = 600.0) -> None:
    """Writes what nobody else would write later, also when the database is away for a while.

    A generation that has ended but is not closed would count as running for as long as its backbone lives.
    """
    until = time.monotonic() + patience_seconds
    while True:
        try:
            write()
            return
        except (OperationalError, InterfaceError) as error:
            if time.monotonic() > until:
                raise
            logger.warning("the end of a generation cannot be written yet: %s", error)
            connection.close()
            time.sleep(RETRY_SECONDS)


@shared_task(name="inference.rescue", ignore_result=True)
def rescue(patience_seconds: float = LOST_MESSAGE_SECONDS) -> int:
    """Queues generations again whose backbone is gone or whose message was lost; returns how many.

    patience_seconds: how old a queued generation is before its message counts as lost.
    """
    client = redis.Redis.from_url(settings.REDIS_URL)
    try:
        lost_before = datetime.now(UTC) - timedelta(seconds=patience_seconds)
        orphans = jobs.orphaned_jobs(alive=backbone_status.alive_boots(client), queued_before=lost_before)
    finally:
        client.close()
    for job_id in orphans:
        generate.delay(str(job_id))
    if orphans:
        logger.warning("%d generations had lost their backbone and are queued again", len(orphans))
    return len(orphans)


@shared_task(name="inference.prune", ignore_result=True)
def prune() -> int:
    """Deletes generations that ended longer ago than GENERATION_KEEP_SECONDS; returns how many."""
    deleted = jobs.prune_jobs(ended_before=datetime.now(UTC) - timedelta(seconds=settings.GENERATION_KEEP_SECONDS))
    if deleted:
        logger.info("%d generations that ended long ago are deleted", deleted)
    return deleted
