"""Compact cases of `manage.py verify`: what they compare and when they fail."""

from pathlib import Path

import numpy as np

from inference.verify.compact import judged
from inference.verify.runner import run_compact


def test_partial_sums_of_real_workers_stay_within_the_limits(tmp_path: Path) -> None:
    result = run_compact("sums-f16", tmp_path, 64)

    assert result.ok, result.extra
    assert (result.kind, result.positions) == ("compact", 64)
    assert result.max_abs_diff is not None
    assert result.max_abs_diff > 0
    assert result.extra["remote_share"] > 0.9
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_distribution_or_rows_that_stayed_here_fail_the_case() -> None:
    exact = np.random.default_rng(0).standard_normal((8, 100)).astype(np.float32)

    equal = judged(exact, exact.copy(), {"remote": 10})
    wrong = judged(exact, -exact, {"remote": 10})
    local = judged(exact, exact.copy(), {"local_uncovered": 10})

    assert (equal["ok"], equal["max_abs_diff"], equal["top1_agreement"]) == (True, 0.0, 1.0)
    assert wrong["ok"] is False
    assert local["ok"] is False


def test_an_unknown_kind_of_results_is_a_failed_case_and_no_traceback(tmp_path: Path) -> None:
    result = run_compact("nonsense", tmp_path, 8)

    assert result.ok is False
    assert "error" in result.extra
