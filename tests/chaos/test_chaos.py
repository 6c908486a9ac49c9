"""`manage.py chaos` in its short form: everything real, half a minute of blows."""

import json
import subprocess
import sys

import pytest

from inference.chaos.blows import WORKER_BLOWS, Blow, timetable
from inference.chaos.judge import Verdict, Watched, judge_memory
from tests.e2e.processes import ROOT


def test_a_timetable_follows_from_its_seed_and_has_every_blow() -> None:
    first, again, other = timetable(300, 7), timetable(300, 7), timetable(300, 8)

    kinds = [timed.blow for timed in first]
    assert first == again
    assert first != other
    assert set(kinds) == set(Blow)
    assert kinds.count(Blow.KILL_BACKBONE) == 1
    assert sum(kind in WORKER_BLOWS for kind in kinds) > 50
    assert [timed.at for timed in first] == sorted(timed.at for timed in first)


def test_memory_that_grows_is_a_problem_and_memory_that_jumps_about_is_none() -> None:
    watched = Watched()
    watched.memory["steady", 1] = [(float(second), 100 << 20 if second % 2 else 120 << 20) for second in range(120)]
    watched.memory["leaking", 2] = [(float(second), (100 + second) << 20) for second in range(120)]
    watched.memory["young", 3] = [(float(second), (second * 10) << 20) for second in range(30)]
    verdict = Verdict()

    judge_memory(verdict, watched)

    assert [problem.split()[0] for problem in verdict.problems] == ["leaking"]
    assert set(verdict.figures["memory_growth_bytes"]) == {"steady", "leaking"}


@pytest.mark.e2e
@pytest.mark.slow
def test_nobody_notices_half_a_minute_of_chaos() -> None:
    result = subprocess.run(
        [sys.executable, "manage.py", "chaos", "--minutes", "0.4", "--seed", "5", "--json"],
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
