"""Stages are used after their digest and a challenge were right; liars are found by challenge and by audit."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from inference import synthetic
from inference.audit import Finding
from inference.gguf_index import open_index
from inference.kernel import kernel_class_name
from inference.llama import ContextSettings
from inference.ring.context import RingContext
from inference.ring.leased import LeasedStages
from inference.ring.relay_line import LeasedStage
from inference.ring.steps import Answer, Step, read_message, write_message
from inference.slices import slice_manifest, write_slice
from inference.stage_accounts import StageAccounts, StageAuditor, who_is
from inference.stage_file import open_stages
from inference.stage_oracle import StageOracle
from inference.stage_verification import StageVerifier, wrong_rows
from inference.verification import Roster, Verdict, Verification
from inference.work_report import WorkKey
from relay.records import Replica, RosterSession
from tests.inference.ring.relayed import Loopback
from tests.inference.stage_chain import SETTINGS, play
from tests.relay.live_relay import wait_until

UNITS = ((0, 1), (1, 2), (2, 3))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic.full122b(tmp_path_factory.mktemp("verified") / "model.gguf", layers=12, shape=synthetic.SMALL)


@pytest.fixture(scope="module")
def paths(model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder, source = tmp_path_factory.mktemp("stages"), open_stages(open_index(model))
    found = []
    for first, last in UNITS:
        found.append(folder / f"{first}-{last}.gguf")
        write_slice(source.plan(first, last), found[-1])
    return found


class Desk:
    """A backbone's verifier, auditor and accounts over three stages of this process."""

    def __init__(self, model: Path, transport: Loopback) -> None:
        self.source = open_stages(open_index(model))
        self.transport = transport
        self.oracle = StageOracle(model, self.source.cuts.boundaries[1:-1])
        self.usable: list[LeasedStage] = []
        self.verdicts: list[Verification] = []
        self.findings: list[Finding] = []
        self.accounts = StageAccounts(self.source.cuts.units)
        self.auditor = StageAuditor(self.oracle, kernel_class_name(), self.findings.append)
        self.verifier = StageVerifier(self.source, self.oracle, transport, self._set_usable, self.verdicts.append)

    def _set_usable(self, stages: Sequence[LeasedStage]) -> None:
        self.usable = list(stages)

    def held(self, number: int) -> Replica:
        first, last = UNITS[number]
        sha256 = slice_manifest(self.source.plan(first, last)).sha256
        return Replica(claim_id=number, fence=1, layer=0, first=first, last=last, sha256=sha256)

    def roster(self, *replicas: Replica, kernel_class: str = "") -> Roster:
        """Stage number n holds the n-th unit, unless `replicas` say else."""
        return {
            number: RosterSession(
                number, f"node {number}", kernel_class or kernel_class_name(), "", {}, (held,), role="stage"
            )
            for number, held in enumerate(replicas or map(self.held, range(3)))
        }

    def lie(self, number: int, change: Callable[[Answer], Answer]) -> None:
        def lying(data: bytes) -> bytes:
            message = read_message(data)
            body = change(message.body) if isinstance(message.body, Answer) else message.body
            return write_message(message.ring, message.number, body)

        self.transport.lies[number] = lying

    def verdict(self, number: int) -> list[Verdict]:
        return [verdict.verdict for verdict in self.verdicts if verdict.claim_id == number]

    def played(self) -> RingContext:
        """A lane's day on a ring over the usable stages, audited and booked."""

        def passed(
            stages: Sequence[LeasedStage], settings: ContextSettings, step: Step, answers: Sequence[Answer]
        ) -> None:
            self.accounts.passed(stages, settings, step, answers)
            self.auditor.passed(stages, settings, step, answers)

        cuts = self.source.cuts
        stages = LeasedStages(self.transport, fingerprint=cuts.model, layers=cuts.trunk_layers, on_passed=passed)
        stages.set_stages(self.usable)
        with RingContext(stages.open_line, SETTINGS, self.source.vocabulary_size) as ring:
            play(ring)
        return ring


@pytest.fixture
def desk(model: Path, paths: list[Path]) -> Iterator[Desk]:
    with Loopback(paths) as transport:
        desk = Desk(model, transport)
        yield desk
        desk.auditor.stop()
        desk.oracle.close()


def slightly_off(answer: Answer) -> Answer:
    values = answer.values.copy()
    values[:, 7] *= np.float32(1.0001)
    return replace(answer, values=values)


def far_off(answer: Answer) -> Answer:
    return replace(answer, values=answer.values[::-1].copy())


def test_honest_stages_are_challenged_once_and_then_used(desk: Desk) -> None:
    retry = desk.verifier.step(desk.roster())
    wait_until(lambda: len(desk.transport.asked) == 9)  # to open, to take a step and to close, each of the three
    desk.verifier.step(desk.roster())

    assert not retry
    assert [desk.verdict(number) for number in range(3)] == [[Verdict.PASSED]] * 3
    assert [stage.description.first for stage in desk.usable] == [0, 4, 8]
    assert len(desk.transport.asked) == 9


def test_what_the_market_calls_live_is_challenged_too(desk: Desk) -> None:
    desk.verifier.step(desk.roster(replace(desk.held(0), state="live")))

    assert desk.verdict(0) == [Verdict.PASSED]


@pytest.mark.parametrize("number", range(3))
def test_a_stage_that_lies_a_little_is_not_used(desk: Desk, number: int) -> None:
    desk.lie(number, slightly_off)

    desk.verifier.step(desk.roster())

    assert desk.verdict(number) == [Verdict.WRONG_ANSWER]
    assert number not in [stage.session for stage in desk.usable]
    assert len(desk.usable) == 2


def test_another_kernel_class_may_differ_a_little_but_not_much(desk: Desk) -> None:
    desk.lie(0, slightly_off)
    desk.lie(1, far_off)

    desk.verifier.step(desk.roster(kernel_class="another program"))

    assert [desk.verdict(number) for number in range(3)] == [
        [Verdict.PASSED], [Verdict.WRONG_ANSWER], [Verdict.PASSED],
    ]  # fmt: skip


def test_a_wrong_digest_is_never_asked(desk: Desk) -> None:
    desk.verifier.step(desk.roster(replace(desk.held(0), sha256="ab" * 32)))

    assert desk.verdict(0) == [Verdict.WRONG_DIGEST]
    assert (desk.transport.asked, desk.usable) == ([], [])


def test_a_stage_that_holds_other_units_than_it_says_is_not_used(desk: Desk) -> None:
    desk.verifier.step(desk.roster(desk.held(1)))

    assert desk.verdict(1) == [Verdict.WRONG_ANSWER]


def test_a_range_that_the_model_has_not_is_left_alone(desk: Desk) -> None:
    desk.verifier.step(desk.roster(replace(desk.held(0), last=9), replace(desk.held(1), layer=3)))

    assert (desk.verdicts, desk.usable) == ([], [])


def test_a_stage_that_does_not_answer_is_asked_again(desk: Desk) -> None:
    desk.transport.gone.add(0)
    retry = desk.verifier.step(desk.roster())
    before = desk.verdict(0)
    desk.transport.gone.clear()
    desk.verifier.step(desk.roster())

    assert retry
    assert (before, desk.verdict(0)) == ([], [Verdict.PASSED])


def test_a_banned_node_is_not_used_any_more(desk: Desk) -> None:
    desk.verifier.step(desk.roster())

    desk.verifier.ban("node 1")
    desk.verifier.step(desk.roster())

    assert [stage.node_id for stage in desk.usable] == ["node 0", "node 2"]


def test_rows_through_units_are_booked_and_honest_answers_pass_their_audits(desk: Desk) -> None:
    desk.verifier.step(desk.roster())
    desk.auditor.start()

    ring = desk.played()
    desk.auditor.stop()
    report = desk.accounts.take_report()

    assert ring.counts.losses == 0
    (rows,) = set(report.used_rows.values())
    assert set(report.used_rows) == {WorkKey(f"node {number}", number, 0) for number in range(3)}
    assert report.demand.tolist() == [[rows] * 3]
    assert rows > ring.counts.steps
    assert desk.findings == []
    assert desk.auditor.counts["passed"] > 0
    assert sum(desk.auditor.take_passes().values()) == desk.auditor.counts["passed"]
    assert not desk.accounts.take_report().used_rows


@pytest.mark.parametrize("number", range(3))
def test_a_stage_that_lies_after_its_challenge_is_found_by_an_audit_and_nobody_else(desk: Desk, number: int) -> None:
    desk.verifier.step(desk.roster())
    desk.lie(number, slightly_off)
    desk.auditor.start()

    desk.played()
    desk.auditor.stop()

    assert desk.findings
    assert {finding.who.node_id for finding in desk.findings} == {f"node {number}"}
    assert all(finding.used and finding.wrong_rows for finding in desk.findings)


def test_trust_makes_audits_rare(desk: Desk) -> None:
    desk.verifier.step(desk.roster())
    for stage in desk.usable:
        desk.auditor.trust(who_is(stage), 10**6)

    desk.played()

    assert desk.auditor.counts["skipped"] == 0
    assert desk.auditor._queue.qsize() <= 1


def test_rows_of_another_shape_are_all_wrong() -> None:
    assert wrong_rows(np.zeros((2, 3), np.float32), np.zeros((4, 3), np.float32), same_class=False)[0] == 4
