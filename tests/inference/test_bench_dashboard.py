"""`bench dashboard`: every page is measured, and the map in a real browser."""

import json
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from pytest_django import DjangoDbBlocker

from inference.benchmarks.dashboard import MEASURES
from inference.chromium import chromium_path
from tests.requirements_check import need

PAGES = {"coverage", "layer", "cell", "series", "nodes", "node", "builds", "requests", "alerts", "policy"}
DRAWN = {"redraw", "redraw after new cells", "first load of coverage"}


@pytest.mark.browser
def test_the_quick_benchmark_measures_every_page(var_dir: Path, django_db_blocker: DjangoDbBlocker) -> None:
    need("Chromium", chromium_path(), "apt-get install -y chromium")
    out = StringIO()

    with django_db_blocker.unblock():
        call_command("bench", "dashboard", "--quick", "--json", stdout=out)

    results = {result["case"]: result for result in json.loads(out.getvalue())["results"]}
    assert set(results) == PAGES | DRAWN | {f"cells {measure}" for measure in MEASURES}
    assert all(result["value"] > 0 for result in results.values())
    assert max(results[f"cells {measure}"]["bytes"] for measure in MEASURES) < 30_000
    assert results["first load of coverage"]["value"] < 200_000
