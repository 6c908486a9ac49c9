"""Generations in the database: made by the API, taken by a backbone, finished once."""

import dataclasses
from collections.abc import Collection
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Count, F
from django.utils import timezone

from inference.models import GenerationJob
from inference.sampling import SamplingParameters

# SQLite has one writer: a long delete would hold up the API.
PRUNED_AT_ONCE = 500
OPEN_STATES = (GenerationJob.State.QUEUED, GenerationJob.State.RUNNING)


def create_job(
    model: str,
    prompt_tokens: list[int],
    sampling: SamplingParameters,
    *,
    api_key_id: int | None = None,
    priority: int = 0,
) -> GenerationJob:
    """Stores a validated request; the caller enqueues it afterwards.

    The seed is fixed now, so that every attempt draws the same tokens. api_key_id: who may read and cancel it.
    """
    return GenerationJob.objects.create(
        api_key_id=api_key_id,
        priority=priority,
        model=model,
        prompt_tokens=prompt_tokens,
        sampling=dataclasses.asdict(sampling.with_seed()),
        prompt_count=len(prompt_tokens),
    )


def take_job(job_id: UUID | str, *, boot: str, alive: Collection[str]) -> GenerationJob | None:
    """Claims the next attempt for backbone `boot` by compare-and-set.

    None when the job is finished, runs on a backbone that is alive (`alive`: boots that spoke lately; a message may be
    delivered twice), or another backbone was faster.
    """
    job = GenerationJob.objects.filter(pk=job_id, state__in=OPEN_STATES).first()
    if job is None or (job.state == GenerationJob.State.RUNNING and job.backbone_boot in alive):
        return None
    taken = GenerationJob.objects.filter(pk=job_id, attempt=job.attempt, state__in=OPEN_STATES).update(
        attempt=F("attempt") + 1,
        backbone_boot=boot,
        state=GenerationJob.State.RUNNING,
        started_at=job.started_at or timezone.now(),
    )
    if not taken:
        return None
    job.attempt += 1
    return job


def is_trusted_only(job: GenerationJob) -> bool:
    """Whether the key that asked shows its rows to trusted workers only; what a page of ours asks for, to all."""
    return job.api_key is not None and job.api_key.trusted_only


def release_job(job: GenerationJob) -> None:
    """Gives an attempt back unfinished: the backbone is stopping, another one may resume it."""
    GenerationJob.objects.filter(pk=job.pk, attempt=job.attempt, state=GenerationJob.State.RUNNING).update(
        state=GenerationJob.State.QUEUED, backbone_boot=""
    )


def orphaned_jobs(*, alive: Collection[str]) -> list[UUID]:
    """Jobs whose backbone is gone, the oldest first."""
    running = GenerationJob.objects.filter(state=GenerationJob.State.RUNNING).exclude(backbone_boot__in=alive)
    return list(running.order_by("created_at").values_list("pk", flat=True))


def waiting_jobs(*, queued_before: datetime) -> list[tuple[UUID, int]]:
    """(id, priority) of the jobs that have waited since then, the oldest first: the message of one may be lost."""
    queued = GenerationJob.objects.filter(state=GenerationJob.State.QUEUED, created_at__lt=queued_before)
    return list(queued.order_by("created_at").values_list("pk", "priority"))


def finish_job(job: GenerationJob, *, finish: str, generated: int, error: str = "") -> bool:
    """Closes the job if `job.attempt` is still the current attempt; False when a later one has taken over."""
    state = GenerationJob.State.FAILED if finish == "error" else GenerationJob.State.DONE
    return bool(
        GenerationJob.objects.filter(pk=job.pk, attempt=job.attempt, state__in=OPEN_STATES).update(
            state=state,
            finish=finish,
            error=error[:1000],
            generated_count=generated,
            finished_at=timezone.now(),
            prompt_tokens=[],
            sampling={},
        )
    )


def prune_jobs(*, ended_before: datetime) -> int:
    """Deletes generations that ended before that time, oldest first; returns how many. Open ones stay."""
    ended = GenerationJob.objects.filter(
        # The index is on the time of creation, which is earlier still.
        state__in=(GenerationJob.State.DONE, GenerationJob.State.FAILED),
        created_at__lt=ended_before,
        finished_at__lt=ended_before,
    ).order_by("created_at")
    deleted = 0
    while keys := list(ended.values_list("pk", flat=True)[:PRUNED_AT_ONCE]):
        deleted += GenerationJob.objects.filter(pk__in=keys).delete()[0]
    return deleted


def sampling_of(job: GenerationJob) -> SamplingParameters:
    """The stored parameters; JSON has lists where the dataclass has tuples."""
    fields: dict[str, Any] = dict(job.sampling)
    return SamplingParameters(**{**fields, "stop": tuple(fields.get("stop", ()))})


def waiting_count(api_key_id: int | None = None) -> int:
    """Generations that have not ended, over all backbones; of one API key when it is given."""
    open_jobs = GenerationJob.objects.filter(state__in=OPEN_STATES)
    return (open_jobs if api_key_id is None else open_jobs.filter(api_key_id=api_key_id)).count()


def open_counts() -> dict[str, int]:
    """Generations that have not ended: how many wait, how many run."""
    found = GenerationJob.objects.filter(state__in=OPEN_STATES).values_list("state").annotate(Count("pk"))
    counts = {str(state): count for state, count in found}
    return {state.value: counts.get(state.value, 0) for state in OPEN_STATES}


def recent_failures(limit: int) -> list[tuple[datetime, str]]:
    """(end, code of the error) of the generations that failed last, newest first; the codes name nobody."""
    failed = GenerationJob.objects.filter(state=GenerationJob.State.FAILED, finished_at__isnull=False)
    rows = failed.order_by("-finished_at").values_list("finished_at", "error")[:limit]
    return [(at, error.partition(":")[0]) for at, error in rows if at is not None]
