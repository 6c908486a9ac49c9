"""The market's timers as one Celery task: a step that is harmless to run twice, called every UPKEEP_SECONDS."""

import logging
from dataclasses import dataclass
from datetime import datetime

from celery import shared_task
from django.utils import timezone

from market import commands

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class UpkeepReport:
    expired_claims: tuple[int, ...]


def step(now: datetime) -> UpkeepReport:
    """One round of all timers."""
    return UpkeepReport(expired_claims=tuple(commands.expire_leases(now)))


@shared_task(name="market.upkeep", ignore_result=True)
def upkeep() -> None:
    report = step(timezone.now())
    if report.expired_claims:
        logger.info("leases expired: claims %s", ", ".join(map(str, report.expired_claims)))
