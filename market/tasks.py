"""The market's timers as Celery tasks: steps that are harmless to run twice, called by the timetable."""

import logging
from dataclasses import dataclass
from datetime import datetime

from celery import shared_task
from django.utils import timezone

from market import commands, replay
from market.invariants import check_books

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class UpkeepReport:
    """left: nodes whose announced time to leave had come. released: nodes whose rewards became available.

    standby_microcredits: paid for replicas that were there. retired: claims that ended with their build.
    lost: claims whose device went away: they have no replica now.
    """

    expired_claims: tuple[int, ...]
    left: tuple[str, ...]
    released: tuple[str, ...]
    standby_microcredits: int = 0
    retired: int = 0
    lost: tuple[int, ...] = ()


def step(now: datetime) -> UpkeepReport:
    """One round of all timers."""
    return UpkeepReport(
        expired_claims=tuple(commands.expire_leases(now)),
        lost=tuple(commands.lose_gone(now)),
        left=tuple(commands.end_planned_leaves(now)),
        retired=commands.end_retired(now),
        released=tuple(commands.release_earnings(now)),
        standby_microcredits=commands.credit_standby(now),
    )


@shared_task(name="market.upkeep", ignore_result=True)
def upkeep() -> None:
    report = step(timezone.now())
    if report.expired_claims:
        logger.info("leases expired: claims %s", ", ".join(map(str, report.expired_claims)))
    if report.lost:
        logger.info("devices went away: claims %s have no replica now", ", ".join(map(str, report.lost)))
    if report.left:
        logger.info("left as planned: nodes %s", ", ".join(report.left))


@shared_task(name="market.check_ledger", ignore_result=True)
def check_ledger() -> bool:
    """Every invariant of docs/ledger.md, the replay too; each broken one is an error in the log."""
    books, replayed = check_books(), replay.check()
    problems = [*books.problems, *map(str, replayed.differences[:20]), *replayed.broken_sums]
    for problem in problems:
        logger.error("the books are wrong: %s", problem)
    if not problems:
        logger.info("the books are right: %d events, %d postings", replayed.events, books.postings)
    return not problems
