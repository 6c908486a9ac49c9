"""`manage.py bench hotset`: the judge of the planner, and a smoke run."""

import json
from io import StringIO
from pathlib import Path

import numpy as np
from django.core.management import call_command

from inference.benchmarks.hotset import best_constant_share, judge, zipf_trace


def test_the_best_constant_set_knows_the_whole_trace() -> None:
    trace = np.array([[[9, 1, 0, 0]], [[0, 1, 9, 0]]], np.uint64)

    assert best_constant_share(trace, 1 / 4) == 0.45
    assert best_constant_share(trace, 1 / 2) == 0.9


def test_the_planner_comes_close_to_hindsight_on_favourites_that_stay() -> None:
    result = judge("zipf", zipf_trace(60, 1.1, 60))

    assert result.met
    assert result.ratio is not None
    assert result.ratio <= 1.0


def test_the_planner_beats_a_constant_set_when_favourites_change() -> None:
    result = judge("zipf", zipf_trace(400, 1.1, 100))

    assert result.ratio is not None
    assert result.ratio > 1.0
    assert result.extra["changes"] > 0


def test_the_quick_run_measures_planner_and_backbone(var_dir: Path) -> None:
    out = StringIO()

    call_command("bench", "hotset", "--quick", "--json", stdout=out)

    results = {result["case"]: result for result in json.loads(out.getvalue())["results"]}
    assert 0 < results["planner/measured"]["value"] < 1
    cold = results["backbone/cold/dispatched rows"]
    assert cold["value"] == cold["rows_per_token"]
    assert results["backbone/hot/rate"]["ratio"] > 0
