"""Generations in figures, for the operator: what runs, what waits, what ended last. No prompts, no texts."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from inference.jobs import OPEN_STATES
from inference.models import GenerationJob


@dataclass(frozen=True)
class JobLine:
    """asked_by: the name of the API key, empty for a page of ours. error: its code, not its text."""

    job_id: UUID
    state: str
    model: str
    asked_by: str
    attempt: int
    backbone: str
    prompt_count: int
    generated_count: int
    finish: str
    error: str
    created_at: datetime
    waited: timedelta | None
    took: timedelta | None

    @property
    def is_open(self) -> bool:
        return self.state in OPEN_STATES

    @property
    def tokens_per_second(self) -> float | None:
        seconds = self.took.total_seconds() if self.took else 0.0
        return self.generated_count / seconds if seconds and self.generated_count else None


def open_jobs(limit: int) -> list[JobLine]:
    """Generations that have not ended: running ones first, then the oldest."""
    rows = GenerationJob.objects.filter(state__in=OPEN_STATES).select_related("api_key")
    return [_line(job) for job in rows.order_by("-state", "created_at")[:limit]]


def ended_jobs(first: int, limit: int) -> list[JobLine]:
    """Generations that ended, newest first, from the one at place `first` on."""
    rows = GenerationJob.objects.exclude(state__in=OPEN_STATES).select_related("api_key").order_by("-created_at")
    return [_line(job) for job in rows[first : first + limit]]


def _line(job: GenerationJob) -> JobLine:
    return JobLine(
        job_id=job.pk,
        state=job.state,
        model=job.model,
        asked_by=job.api_key.name if job.api_key else "",
        attempt=job.attempt,
        backbone=job.backbone_boot,
        prompt_count=job.prompt_count,
        generated_count=job.generated_count,
        finish=job.finish,
        error=job.error.partition(":")[0],
        created_at=job.created_at,
        waited=job.started_at - job.created_at if job.started_at else None,
        took=job.finished_at - job.started_at if job.finished_at and job.started_at else None,
    )


def exists(job_id: UUID) -> bool:
    return GenerationJob.objects.filter(pk=job_id).exists()
