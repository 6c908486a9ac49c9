"""`manage.py bench soak`: the slope, and a smoke run that watches every process."""

import json
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command

from inference.benchmarks.soak import Sample, as_results, slope_per_hour


def test_a_slope_is_that_of_the_straight_line_through_the_samples() -> None:
    looks = [Sample(at, 0, 0) for at in (0.0, 1800.0, 3600.0)]

    assert slope_per_hour(looks, [10.0, 11.0, 12.0]) == pytest.approx(2.0)
    assert slope_per_hour(looks, [10.0, 10.0, 10.0]) == pytest.approx(0.0)
    assert slope_per_hour(looks[:1], [10.0]) == 0.0


def test_the_first_half_may_fill_caches() -> None:
    sizes = [100, 150, 200, 200, 200, 200]
    looks = [Sample(60.0 * number, size * 10**6, 12) for number, size in enumerate(sizes)]

    (result,) = as_results({"backbone": looks}, answers=9, failed=0)

    assert result.value == pytest.approx(0.0, abs=1e-6)
    assert result.extra["descriptors_per_hour"] == pytest.approx(0.0, abs=1e-6)
    assert "descriptors 12 to 12" in result.extra["note"]


def test_the_quick_run_watches_every_process(var_dir: Path) -> None:
    out = StringIO()

    call_command("bench", "soak", "--quick", "--json", stdout=out)

    results = json.loads(out.getvalue())["results"]
    assert [result["case"] for result in results] == [
        "backbone/memory", "relay 1/memory", "lines 1/memory", "workers 1/memory", "workers 2/memory",
    ]  # fmt: skip
    assert results[0]["answers"] > 0
    assert results[0]["failed"] == 0
