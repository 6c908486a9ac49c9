"""Audits: a liar is caught, an honest worker never, and nothing wrong is used before trust is earned."""

from collections.abc import Callable

import numpy as np
import pytest

from inference import liars
from inference.audit import (
    SECOND_MODE_SHARE,
    TRUSTED_PASSES,
    WINDOW_ROWS,
    AuditCase,
    Auditor,
    Finding,
    Ledger,
    NodeClass,
    Plan,
)
from inference.liars import Lie
from inference.rows import ByteArray, Float32Array, IntArray

SAME, OTHER = NodeClass("mallory", "ggml"), NodeClass("mallory", "numpy")
Answer = Callable[[Float32Array, IntArray], Float32Array]
WIDTH = 64
WEIGHTS = np.random.default_rng(1).standard_normal((8, WIDTH, WIDTH)).astype(np.float32) / 50


def truth(rows: Float32Array | ByteArray, expert_ids: IntArray) -> Float32Array:
    return np.stack([row @ WEIGHTS[expert] for row, expert in zip(rows, expert_ids, strict=True)]).astype(np.float32)


class Oracle:
    def compute(self, layer: int, rows: Float32Array, expert_ids: IntArray) -> Float32Array:
        return truth(rows, expert_ids)


def case(
    who: NodeClass, answer: Callable[[Float32Array, IntArray], Float32Array], seed: int, pairs: int = 8
) -> AuditCase:
    random = np.random.default_rng(seed)
    rows = random.standard_normal((pairs, WIDTH), dtype=np.float32)
    experts = np.arange(pairs, dtype=np.int32) % 8
    return AuditCase(who, 3, rows, experts, answer(rows, experts))


def lying(lie: Lie) -> Answer:
    return lambda rows, expert_ids: lie(truth, rows, expert_ids)


def trusted(ledger: Ledger, who: NodeClass, passes: int = TRUSTED_PASSES) -> None:
    for number in range(passes):
        honest = case(who, truth, number)
        assert ledger.judge(honest, truth(honest.rows, honest.experts), used=False) is None


def test_every_answer_of_a_new_node_is_checked_before_use() -> None:
    ledger = Ledger("ggml")

    plans = {ledger.plan(SAME, draw) for draw in (0.0, 0.5, 0.999)}

    assert plans == {Plan.BEFORE}


def test_trust_makes_audits_rarer_but_never_rarer_than_one_in_a_hundred() -> None:
    ledger = Ledger("ggml")

    trusted(ledger, SAME, 10)
    assert (ledger.plan(SAME, 0.09), ledger.plan(SAME, 0.11)) == (Plan.AFTER, Plan.NONE)
    trusted(ledger, SAME, 500)

    assert (ledger.plan(SAME, 0.009), ledger.plan(SAME, 0.011)) == (Plan.AFTER, Plan.NONE)


def test_a_failure_takes_all_trust_away() -> None:
    ledger = Ledger("ggml")
    trusted(ledger, SAME)

    wrong = case(SAME, lying(liars.constant_offset), 0)
    finding = ledger.judge(wrong, truth(wrong.rows, wrong.experts), used=True)

    assert finding is not None
    assert (finding.wrong_rows, finding.rule, finding.used) == (8, "bits", True)
    assert ledger.plan(SAME, 0.5) is Plan.BEFORE


def test_trust_in_one_kernel_class_says_nothing_about_another() -> None:
    ledger = Ledger("ggml")

    trusted(ledger, SAME)

    assert ledger.plan(OTHER, 0.999) is Plan.BEFORE


def test_the_same_class_must_give_the_same_bits_and_another_may_round() -> None:
    ledger = Ledger("ggml")

    def nearly(rows: Float32Array, experts: IntArray) -> Float32Array:
        return np.asarray(truth(rows, experts) * np.float32(1 + 1e-6), np.float32)

    verdicts = []
    for who in (SAME, OTHER):
        answered = case(who, nearly, 0)
        verdicts.append(ledger.judge(answered, truth(answered.rows, answered.experts), used=False))

    assert verdicts[0] is not None
    assert verdicts[1] is None


def test_another_class_may_not_be_coarse_too_often() -> None:
    ledger = Ledger("ggml")

    def a_little_off(rows: Float32Array, experts: IntArray) -> Float32Array:
        return np.asarray(truth(rows, experts) * np.float32(1.02), np.float32)  # error 4e-4: below the row limit

    findings = []
    for number in range(WINDOW_ROWS // 8):
        answered = case(OTHER, a_little_off, number)
        findings.append(ledger.judge(answered, truth(answered.rows, answered.experts), used=True))

    caught = [finding for finding in findings if finding is not None]
    assert caught[0].rule == "window_share"
    assert findings.index(caught[0]) * 8 <= SECOND_MODE_SHARE * WINDOW_ROWS


LIES: dict[str, Lie] = {
    "constant offset": liars.constant_offset,
    "zeros": liars.zeros,
    "swapped experts": liars.SwappedExperts(0, 8),
    "replay of an old answer": liars.Replay(),
    "requantised": liars.coarse_rows,
}


@pytest.mark.parametrize("name", LIES)
@pytest.mark.parametrize("who", [SAME, OTHER])
def test_a_liar_is_caught_before_trust_is_earned(name: str, who: NodeClass) -> None:
    auditor = Auditor(Oracle(), "ggml")
    used = []

    # In its own class the first lie shows; in another one small errors show by their number, after 21 rows.
    for number in range(2 if who is SAME else 4):
        answered = case(who, lying(LIES[name]), number)
        assert auditor.plan(who) is Plan.BEFORE
        used.append(auditor.check(answered, truth(answered.rows, answered.experts)))

    assert False in used


def test_a_liar_that_waits_until_it_is_trusted_is_caught_by_samples() -> None:
    findings: list[Finding] = []
    auditor = Auditor(Oracle(), "ggml", findings.append, seed=5)
    auditor.start()
    for number in range(TRUSTED_PASSES):
        honest = case(SAME, truth, number)
        assert auditor.check(honest, truth(honest.rows, honest.experts))

    answers = 0
    while not findings and answers < 500:
        answers += 1
        if auditor.plan(SAME) is Plan.AFTER:
            assert auditor.submit(case(SAME, lying(liars.zeros), answers))
            assert auditor.wait_idle(5.0)
    auditor.stop()

    assert [finding.used for finding in findings] == [True]
    assert answers < 100


def test_one_wrong_row_in_a_thousand_is_found_at_the_least_audit_rate() -> None:
    auditor = Auditor(Oracle(), "ggml", seed=1)
    liar = liars.RareError(1000)
    found_after = 0
    for number in range(200):  # every answer audited: what is measured is the rule, not the sampling
        answered = case(SAME, lying(liar), number, pairs=64)
        if not auditor.check(answered, truth(answered.rows, answered.experts)):
            found_after = (number + 1) * 64
            break

    assert 0 < found_after <= 200 * 64


def test_memory_is_bounded_and_what_finds_no_room_is_counted() -> None:
    auditor = Auditor(Oracle(), "ggml", queue_bytes=10_000)  # its thread is not started: nothing leaves the queue

    queued = [auditor.submit(case(SAME, truth, number)) for number in range(5)]

    assert queued == [True, True, False, False, False]
    assert auditor.counts["skipped"] == 3
