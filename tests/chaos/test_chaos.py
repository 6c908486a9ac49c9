"""`manage.py chaos` in its short form: everything real, half a minute of blows."""

import json
import subprocess
import sys
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from inference import liars
from inference.chaos.blows import STAGE_BLOWS, WORKER_BLOWS, Blow, timetable
from inference.chaos.judge import Verdict, Watched, judge_liars, judge_memory, judge_rings
from inference.chaos.liar_worker import FIRST_LIE, LyingKernel, honest_at_first
from inference.worker import serve
from inference.worker.holdings import Holding
from relay.frames import Frame, FrameType
from tests.e2e.processes import ROOT


def test_a_timetable_follows_from_its_seed_and_has_every_blow() -> None:
    first, again, other = timetable(300, 7), timetable(300, 7), timetable(300, 8)

    kinds = [timed.blow for timed in first]
    assert first == again
    assert first != other
    assert set(kinds) == set(Blow) - set(STAGE_BLOWS)
    assert kinds.count(Blow.KILL_BACKBONE) == 1
    assert sum(kind in WORKER_BLOWS for kind in kinds) > 50
    assert [timed.at for timed in first] == sorted(timed.at for timed in first)


def test_stages_are_struck_where_there_are_some() -> None:
    kinds = [timed.blow for timed in timetable(60, 7, with_stages=True)]

    assert set(kinds) == set(Blow)
    assert 4 <= sum(kind in STAGE_BLOWS for kind in kinds) <= 10


def test_memory_that_grows_is_a_problem_and_memory_that_jumps_about_is_none() -> None:
    watched = Watched()
    watched.memory["steady", 1] = [(float(second), 100 << 20 if second % 2 else 120 << 20) for second in range(120)]
    watched.memory["leaking", 2] = [(float(second), (100 + second) << 20) for second in range(120)]
    watched.memory["young", 3] = [(float(second), (second * 10) << 20) for second in range(30)]
    verdict = Verdict()

    judge_memory(verdict, watched)

    assert [problem.split()[0] for problem in verdict.problems] == ["leaking"]
    assert set(verdict.figures["memory_growth_bytes"]) == {"steady", "leaking"}


def test_rings_that_were_never_lost_are_a_problem_only_where_many_stages_were_killed() -> None:
    watched = Watched()
    watched.rings["boot"] = {"steps": 9, "rings_lost": 0, "replayed_tokens": 0}
    problems = {}
    for kills in (2, 3):
        verdict = Verdict()
        judge_rings(verdict, watched, kills)
        problems[kills] = len(verdict.problems)

    assert problems == {2: 0, 3: 2}


class Honest:
    """Stands for an expert kernel whose every answer is one."""

    layer, first, last, n_embd, kernel_class = 0, 0, 8, 4, "of this test"

    def compute(self, rows: np.ndarray, expert_ids: np.ndarray) -> np.ndarray:
        return np.ones((len(expert_ids), 4), np.float32)

    def close(self) -> None:
        raise AssertionError("nobody closes it here")


def test_a_patient_liar_tells_the_truth_until_it_is_trusted_and_to_every_challenge(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = LyingKernel(Honest(), liars.zeros)
    holding = cast(Holding, SimpleNamespace(kernel=kernel))
    monkeypatch.setattr(
        serve, "compute", lambda frame, holding: holding.kernel.compute(np.ones((1, 4), np.float32), np.zeros(1, int))
    )
    honest_at_first(2)
    kinds = [FrameType.DISPATCH, FrameType.CHALLENGE, *[FrameType.DISPATCH] * 3, FrameType.CHALLENGE]

    answers = [float(serve.compute(Frame(kind), holding)[0, 0]) for kind in kinds]

    assert answers == [1, 1, 1, 0, 0, 1]
    assert capsys.readouterr().out == f"{FIRST_LIE}\n"


def test_a_liar_that_was_not_suspended_is_a_problem_and_one_that_hardly_lied_is_none() -> None:
    problems = {}
    for lied in (5, 6, 7):
        verdict = Verdict()
        verdict.add("nodes_suspended", 5)
        judge_liars(verdict, lied)
        problems[lied] = verdict.problems

    assert problems == {5: [], 6: [], 7: ["7 workers lied, 5 were suspended"]}


@pytest.mark.e2e
@pytest.mark.slow
def test_nobody_notices_half_a_minute_of_chaos() -> None:
    result = subprocess.run(
        [sys.executable, "manage.py", "chaos", "--minutes", "0.4", "--seed", "5", "--stages", "3", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    figures = json.loads(result.stdout)
    assert figures["problems"] == []
    assert result.returncode == 0
    assert figures["ok"] is True
    assert figures["max_abs_diff"] == 0.0
    assert figures["requests_finished"] > 16
    assert figures["ring_steps"] > 0
    assert figures["blows"]["kill_stage"] > 0
