"""Audits: the backbone holds every expert, so it recomputes answers, all of a new node's and a few of a known one's.

Trust N of a (node, kernel class) is the number of audited answers in a row that passed; a failure sets it to zero.
Below `TRUSTED_PASSES` every answer is computed here too and compared before it is used, in the lane. From then on one
answer in N is recomputed after its use (at least one in a hundred), by one background thread with bounded memory.

Same kernel class: the bits must be equal. Other classes: honest errors have two modes (design.md section 7), so a hard
limit per row, and per window of 1,000 rows a limit on how many are not within the first mode. Whole groups are
recomputed, in one kernel call, as the worker had to (docs/decisions/0004).

Knows nodes, rows and an oracle; nothing of the market or of sockets.
"""

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import numpy as np
import numpy.typing as npt

from inference.challenge import ROW_ERROR_LIMIT, row_errors
from inference.rows import Float32Array, IntArray, partial_sums

Answer = Float32Array | npt.NDArray[np.float16]

logger = logging.getLogger(__name__)

TRUSTED_PASSES = 10
LEAST_PROBABILITY = 0.01
QUEUE_BYTES = 32 << 20
# Rows of another kernel class whose int8 roundings all fell alike are below the first limit (median 2e-7).
FIRST_MODE_LIMIT = 1e-5
WINDOW_ROWS = 1000
SECOND_MODE_SHARE = 0.02


class Plan(Enum):
    """When an answer is audited."""

    BEFORE = "before"
    AFTER = "after"
    NONE = "none"


@dataclass(frozen=True)
class NodeClass:
    """Whose trust it is."""

    node_id: str
    kernel_class: str


@dataclass(frozen=True)
class Sums:
    """How pairs were added up for an answer of partial sums, see `inference.rows.partial_sums`."""

    row_of_pair: npt.NDArray[np.integer]
    weights: Float32Array
    rows: int
    kind: type[np.float32] | type[np.float16]


@dataclass(frozen=True)
class AuditCase:
    """A used answer. rows: (m, n_embd) float32, one per pair; experts: (m,) int32; answer: (m, n_embd) float32, or
    (sums.rows, n_embd) partial sums."""

    who: NodeClass
    layer: int
    rows: Float32Array
    experts: IntArray
    answer: Answer
    sums: Sums | None = None

    def expected(self, computed: Float32Array) -> Answer:
        """What the answer must be, from the right row of every pair."""
        sums = self.sums
        if sums is None:
            return computed
        return partial_sums(computed, sums.row_of_pair, sums.weights, sums.rows, sums.kind)

    @property
    def size_bytes(self) -> int:
        return self.rows.nbytes + self.answer.nbytes


@dataclass(frozen=True)
class Finding:
    """A failed audit. used: whether the wrong rows had been used already; worst: largest normalised squared error."""

    who: NodeClass
    layer: int
    rows: int
    wrong_rows: int
    worst: float
    used: bool
    rule: str


class Oracle(Protocol):
    """Computes what a worker should have answered; used by one thread at a time."""

    def compute(self, layer: int, rows: Float32Array, expert_ids: IntArray) -> Float32Array: ...


class Record:
    """What is known of one (node, kernel class). Errors are kept for the window rule of other kernel classes."""

    def __init__(self) -> None:
        self.passes = 0
        self.errors: deque[bool] = deque(maxlen=WINDOW_ROWS)

    def probability(self) -> float:
        """Of an audit after use; certain before trust is earned."""
        return 1.0 if self.passes < TRUSTED_PASSES else max(1.0 / self.passes, LEAST_PROBABILITY)


class Ledger:
    """Trust of all nodes and the rules for it. The caller holds a lock."""

    def __init__(self, kernel_class: str) -> None:
        self._kernel_class = kernel_class
        self._records: dict[NodeClass, Record] = {}

    def of(self, who: NodeClass) -> Record:
        return self._records.setdefault(who, Record())

    def plan(self, who: NodeClass, draw: float) -> Plan:
        """draw: uniform in [0, 1)."""
        record = self.of(who)
        if record.passes < TRUSTED_PASSES:
            return Plan.BEFORE
        return Plan.AFTER if draw < record.probability() else Plan.NONE

    def judge(self, case: AuditCase, computed: Float32Array, *, used: bool) -> Finding | None:
        """Compares an answer with the right row of every pair and notes the verdict; the finding when it fails."""
        record, expected = self.of(case.who), case.expected(computed)
        errors = row_errors(case.answer.astype(np.float32), expected.astype(np.float32))
        if case.who.kernel_class == self._kernel_class:
            bits = np.uint16 if expected.dtype == np.float16 else np.uint32
            rule, wrong = "bits", (case.answer.view(bits) != expected.view(bits)).any(axis=1)
        else:
            rule, wrong = "row_limit", errors > ROW_ERROR_LIMIT
            record.errors.extend((errors > FIRST_MODE_LIMIT).tolist())
            # Counted against a whole window from the first row on: honest nodes reach it as good as never (binomial
            # with 0.2%), a coarse one with its 21st row.
            if not wrong.any() and sum(record.errors) > SECOND_MODE_SHARE * WINDOW_ROWS:
                rule, wrong = "window_share", errors > FIRST_MODE_LIMIT
        if not wrong.any() and rule != "window_share":
            record.passes += 1
            return None
        record.passes = 0
        record.errors.clear()
        worst = float(errors.max())
        return Finding(case.who, case.layer, len(wrong), int(wrong.sum()), worst, used, rule)


class Auditor:
    """Plans audits for the lanes and does those after use. on_failure: called once per finding, from any thread."""

    def __init__(
        self,
        oracle: Oracle,
        kernel_class: str,
        on_failure: Callable[[Finding], None] = lambda finding: None,
        queue_bytes: int = QUEUE_BYTES,
        seed: int | None = None,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._passes: Counter[NodeClass] = Counter()
        self._oracle = oracle
        self._ledger = Ledger(kernel_class)
        self._on_failure = on_failure
        self._queue_bytes = queue_bytes
        self._random = np.random.default_rng(seed)
        self._queue: deque[AuditCase] = deque()
        self._queued_bytes = 0
        self._is_busy = False
        self._stopping = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="auditor", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Drops what is queued and waits for the thread."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    # --- lanes --------------------------------------------------------------------------------------------------------
    def plan(self, who: NodeClass) -> Plan:
        with self._changed:
            return self._ledger.plan(who, float(self._random.random()))

    def trust(self, who: NodeClass, passes: int) -> None:
        """What the market knows of a node that this backbone has not audited yet."""
        with self._changed:
            record = self._ledger.of(who)
            record.passes = max(record.passes, passes)

    def take_passes(self) -> Counter[NodeClass]:
        """Audits passed since the last call."""
        with self._changed:
            passes, self._passes = self._passes, Counter()
        return passes

    def passes_count(self, who: NodeClass) -> int:
        with self._changed:
            return self._ledger.of(who).passes

    def check(self, case: AuditCase, expected: Float32Array) -> bool:
        """An audit before use: whether the answer may be used."""
        return self._settle(case, expected, used=False)

    def submit(self, case: AuditCase) -> bool:
        """Queues an audit after use; False when there is no room for it. The arrays must not change any more."""
        with self._changed:
            if self._stopping or self._queued_bytes + case.size_bytes > self._queue_bytes:
                self.counts["skipped"] += 1
                return False
            self._queue.append(case)
            self._queued_bytes += case.size_bytes
            self._changed.notify_all()
            return True

    def wait_idle(self, seconds: float) -> bool:
        """Whether everything queued was audited within the time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._queue and not self._is_busy, seconds)

    # --- the auditor's thread -----------------------------------------------------------------------------------------
    def _run(self) -> None:
        while True:
            with self._changed:
                self._is_busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._queue or self._stopping)
                if self._stopping:
                    return
                case = self._queue.popleft()
                self._queued_bytes -= case.size_bytes
                self._is_busy = True
            try:
                self._settle(case, self._oracle.compute(case.layer, case.rows, case.experts), used=True)
            except Exception:
                logger.exception("an audit of node %s failed by itself; its trust stays as it is", case.who.node_id)

    def _settle(self, case: AuditCase, expected: Float32Array, *, used: bool) -> bool:
        with self._changed:
            finding = self._ledger.judge(case, expected, used=used)
            self.counts["after" if used else "before"] += 1
            self.counts["rows"] += len(case.rows)
            self.counts["passed" if finding is None else "failed"] += 1
            if finding is None:
                self._passes[case.who] += 1
        if finding is None:
            return True
        logger.warning(
            "node %s (%s), layer %d: %d of %d rows are wrong (%s, worst error %.3g, %s)",
            case.who.node_id, case.who.kernel_class, case.layer, finding.wrong_rows, finding.rows, finding.rule,
            finding.worst, "already used" if used else "not used",
        )  # fmt: skip
        self._on_failure(finding)
        return False
