"""`manage.py bench rtt`: the ratio against the bound, and a smoke run through a real relay and slow lines."""

import json
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command

from inference.benchmarks.rig.rounds import Round
from inference.benchmarks.rtt import as_results


def a_round(per_second: float) -> Round:
    return Round(int(10 * per_second), 10.0, {"backbone": 0.2, "relay": 0.1}, {"remote": 99, "fallback_late": 1})


def test_the_bound_is_the_round_trips_or_the_rate_without_delay_whichever_is_less() -> None:
    rounds = {0: [a_round(100.0)], 20: [a_round(80.0)], 100: [a_round(9.0)]}

    _, near, far = as_results(rounds, lanes=1, sequences=8, layers=8)

    assert (near.case, near.limit, near.ratio) == ("rtt20/lanes1/seq8", 50.0, 1.6)
    assert (far.case, far.limit, far.ratio) == ("rtt100/lanes1/seq8", 10.0, 0.9)
    assert (near.goal, far.goal, far.met) == (None, 0.85, True)
    assert far.extra["remote_share"] == 0.99


def test_without_delay_there_is_no_bound_but_the_processor() -> None:
    (result,) = as_results({0: [a_round(100.0)]}, lanes=2, sequences=8, layers=8)

    assert result.limit is None
    assert result.to_json()["ratio"] is None
    assert result.extra["busy_share"] == pytest.approx(0.3)


def test_the_quick_run_computes_every_row_at_the_far_end_of_slow_lines(var_dir: Path) -> None:
    out = StringIO()

    call_command("bench", "rtt", "--quick", "--json", stdout=out)

    none, slow = json.loads(out.getvalue())["results"]
    assert none["value"] > slow["value"] > 0
    assert slow["ratio"] < 1.05  # nothing is faster than light
    assert slow["remote_share"] == none["remote_share"] == 1.0
