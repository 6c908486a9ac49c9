"""What the dispatcher counted: rows that workers computed and the backbone used, rows it computed itself and why.

A row here is one (token, expert) pair of one layer. Plain data; `inference.tasks` turns it into market commands.
"""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class RowPlace(StrEnum):
    """Where a row was computed, and why there."""

    REMOTE = "remote"
    UNCOVERED = "local_uncovered"
    HOT = "local_hot"
    PAUSED = "local_owner_paused"
    OVER_CAP = "local_over_cap"
    PREFILL = "local_prefill"
    LATE = "fallback_late"
    FAILED = "fallback_failed"
    NOT_FINITE = "fallback_not_finite"
    BAD_SHAPE = "fallback_bad_shape"
    AUDIT_FAILED = "fallback_audit_failed"
    ABORTED = "fallback_aborted"


class Moment(StrEnum):
    """What else the dispatcher counts: rows asked of a second replica after the first one failed; audits of answers
    before and after their use and what came of them; bytes of bodies sent to workers and received; layers that waited
    longer than SLOW_STEP_SECONDS."""

    RETRIED_ROWS = "retried_rows"
    AUDITED_BEFORE = "audited_before_use"
    AUDITED_AFTER = "audited_after_use"
    AUDIT_SKIPPED = "audit_skipped_no_room"
    AUDIT_FAILURES = "audit_failures"
    SENT_BYTES = "sent_bytes"
    RECEIVED_BYTES = "received_bytes"
    SLOW_STEPS = "slow_steps"


class WorkKey(NamedTuple):
    """Who computed: the unit of credit."""

    node_id: str
    claim_id: int
    layer: int


@dataclass
class WorkReport:
    """Counts since the last report. demand: (layers, experts) uint64 router activations, without those of experts that
    are hot; missed: those of them that a worker held and did not compute in time."""

    demand: npt.NDArray[np.uint64]
    used_rows: Counter[WorkKey] = field(default_factory=Counter)
    places: Counter[RowPlace] = field(default_factory=Counter)
    failures: Counter[tuple[str, str]] = field(default_factory=Counter)  # (node, code of the failure)
    moments: Counter[Moment] = field(default_factory=Counter)
    missed: npt.NDArray[np.uint64] = field(init=False)

    def __post_init__(self) -> None:
        self.missed = np.zeros_like(self.demand)

    def add(self, other: "WorkReport") -> None:
        """Adds the counts of `other`, a later report of the same model."""
        self.demand += other.demand
        self.missed += other.missed
        self.used_rows.update(other.used_rows)
        self.places.update(other.places)
        self.failures.update(other.failures)
        self.moments.update(other.moments)


def added(total: WorkReport | None, report: WorkReport) -> WorkReport:
    """`total` with the counts of `report`; neither array of `report` is shared."""
    if total is None:
        total = WorkReport(np.zeros_like(report.demand))
    total.add(report)
    return total
