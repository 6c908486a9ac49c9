"""What rings through the relay owe their stages, and whether the stages earned it: rows counted, answers recomputed.

A row is a token through one unit. Answers are audited where everything that they depend on is in one batch: all its
sequences begin there, as with a prompt; `inference.stage_oracle` then gives the very bits. Knows nothing of the market.
"""

import logging
import queue
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from inference.audit import Finding, NodeClass, Record
from inference.llama import ContextSettings
from inference.ring.relay_line import LeasedStage
from inference.ring.steps import Answer, Step
from inference.stage_oracle import FreshBatch, OracleFailed, StageOracle
from inference.stage_verification import output_of, wrong_rows
from inference.stages import STAGE_LAYER
from inference.work_report import WorkKey, WorkReport

logger = logging.getLogger(__name__)

CASES_WAITING = 4


class StageAccounts:
    """Rows that stages computed and rings used. Methods from any thread."""

    def __init__(self, units: int) -> None:
        self._units = units
        self._lock = threading.Lock()
        self._report = self._empty()

    def passed(
        self, stages: Sequence[LeasedStage], settings: ContextSettings, step: Step, answers: Sequence[Answer]
    ) -> None:
        """See `inference.ring.relay_line.Passed`."""
        with self._lock:
            for stage in stages:
                rows = step.rows * (stage.last_unit - stage.first_unit)
                self._report.used_rows[WorkKey(stage.node_id, stage.claim_id, STAGE_LAYER)] += rows
                self._report.demand[0, stage.first_unit : stage.last_unit] += np.uint64(step.rows)

    def take_report(self) -> WorkReport:
        """Counts since the last call; demand (1, units)."""
        with self._lock:
            report, self._report = self._report, self._empty()
        return report

    def _empty(self) -> WorkReport:
        return WorkReport(np.zeros((1, self._units), np.uint64))


@dataclass(frozen=True)
class Case:
    """Answers of all stages of a ring to one batch."""

    stages: tuple[LeasedStage, ...]
    batch: FreshBatch
    answers: tuple[Answer, ...]


def begins_all(step: Step) -> bool:
    """Whether every sequence of a step begins in it."""
    first_seen = np.unique(step.sequences, return_index=True)[1]
    return bool((step.positions[first_seen] == 0).all())


class StageAuditor:
    """Recomputes answers after their use, in a thread of its own: certainly those of stages without trust, then more
    and more rarely (`inference.audit.Record`). Cases that find no room are not audited.

    on_finding: of the first stage of a ring whose answer was wrong; what comes behind it was fed wrongly.
    """

    def __init__(self, oracle: StageOracle, kernel_class: str, on_finding: Callable[[Finding], None]) -> None:
        self.counts: Counter[str] = Counter()
        self._oracle, self._kernel_class = oracle, kernel_class
        self._on_finding = on_finding
        self._records: dict[NodeClass, Record] = {}
        self._passes: Counter[NodeClass] = Counter()
        self._lock = threading.Lock()
        self._queue: queue.Queue[Case | None] = queue.Queue(CASES_WAITING)
        self._thread = threading.Thread(target=self._run, name="stage-audit", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when what waits was audited."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()

    def knows(self, who: NodeClass) -> bool:
        return who in self._records

    def trust(self, who: NodeClass, passes: int) -> None:
        """Audits in a row that the node has passed before."""
        self._record(who).passes = passes

    def take_passes(self) -> Counter[NodeClass]:
        with self._lock:
            passes, self._passes = self._passes, Counter()
        return passes

    def passed(
        self, stages: Sequence[LeasedStage], settings: ContextSettings, step: Step, answers: Sequence[Answer]
    ) -> None:
        """See `inference.ring.relay_line.Passed`. Returns at once."""
        if step.tokens is None or not begins_all(step):
            return
        if random.random() >= max(self._record(who_is(stage)).probability() for stage in stages):
            return
        # Copies: the arrays of a step are those of the lane's batch, which the next step overwrites.
        batch = FreshBatch(
            settings, step.tokens.copy(), step.positions.copy(), step.sequences.copy(), step.wants_logits.copy()
        )
        try:
            self._queue.put_nowait(Case(tuple(stages), batch, tuple(answers)))
        except queue.Full:
            self.counts["skipped"] += 1

    def audit(self, case: Case) -> None:
        """Recomputes one case. Raises OracleFailed."""
        expected = self._oracle.compute(case.batch)
        was_fed_exactly = True  # else not even the same program gives the same bits
        for stage, answer in zip(case.stages, case.answers, strict=True):
            who, right = who_is(stage), output_of(stage.description, expected)
            same_bits = was_fed_exactly and who.kernel_class == self._kernel_class
            wrong, worst = wrong_rows(answer.values, right, same_class=same_bits)
            if wrong:
                self.counts["failed"] += 1
                self._record(who).passes = 0
                rule = "same bits" if same_bits else "near"
                self._on_finding(Finding(who, stage.description.first, len(right), wrong, worst, True, rule))
                return
            was_fed_exactly = was_fed_exactly and worst == 0.0
            self.counts["passed"] += 1
            self._record(who).passes += 1
            with self._lock:
                self._passes[who] += 1

    def _run(self) -> None:
        while (case := self._queue.get()) is not None:
            try:
                self.audit(case)
            except OracleFailed as error:
                logger.warning("an audit of stages failed by itself: %s", error)
            except Exception:
                logger.exception("an audit of stages failed by itself")

    def _record(self, who: NodeClass) -> Record:
        return self._records.setdefault(who, Record())


def who_is(stage: LeasedStage) -> NodeClass:
    return NodeClass(stage.node_id, stage.kernel_class)
