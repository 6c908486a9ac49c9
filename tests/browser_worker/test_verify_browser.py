"""`verify --browser`: a tab in headless Chromium computes every remote expert; what counts as right is stated."""

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from pytest_django import Settings

from inference.verify.browser import KL_LIMIT, QUICK, judged

pytestmark = pytest.mark.browser

RUN = {"remote_share": 1.0, "places": {}, "failures": {}, "finishes": {"length": 3}}
TRACE = {"positions": 100, "max_abs_diff": 0.4, "kl_max": 0.01, "kl_mean": 0.0002, "top1_agreement": 0.99}


@pytest.mark.slow
def test_a_tab_computes_what_plain_llama_cpp_does_within_the_limits(
    chromium: str, tmp_path: Path, settings: Settings
) -> None:
    settings.VAR_DIR = tmp_path
    out = StringIO()

    call_command("verify", browser=True, quick=True, json=True, stdout=out)

    (case,) = json.loads(out.getvalue())["cases"]
    assert case["kind"] == "browser"
    assert case["ok"]
    assert case["remote_share"] > 0.9
    assert 0 < case["max_abs_diff"] < 2
    assert case["kl_max"] <= KL_LIMIT


@pytest.mark.parametrize(
    ("change", "run", "said"),
    [
        ({"kl_max": 0.4}, {}, "part from"),
        ({"kl_mean": 0.01}, {}, "part from"),
        ({"top1_agreement": 0.9}, {}, "part from"),
        ({"kl_max": float("nan")}, {}, "part from"),
        ({"positions": 10}, {}, "only 10 positions"),
        ({}, {"remote_share": 0.5}, "50.0% of the expert rows"),
        ({}, {"finishes": {"error": 1}}, "1 requests failed"),
    ],
)
def test_a_case_that_misses_something_says_what(change: dict[str, Any], run: dict[str, Any], said: str) -> None:
    result = judged(QUICK[0], {**RUN, **run}, [{**TRACE, **change}], 64)

    assert not result.ok
    assert said in result.extra["error"]


def test_a_case_within_the_limits_is_ok() -> None:
    result = judged(QUICK[0], RUN, [TRACE, {**TRACE, "kl_max": 0.02}], 64)

    assert result.ok
    assert (result.positions, result.kl_max, result.top1_agreement) == (200, 0.02, 0.99)
