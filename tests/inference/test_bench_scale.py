"""`manage.py bench scale --quick`: real processes, every case."""

import json
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from pytest_django import DjangoDbBlocker

from tests.market.databases import postgres_url

pytestmark = pytest.mark.e2e


def test_a_smoke_run_measures_every_case(var_dir: Path, django_db_blocker: DjangoDbBlocker) -> None:
    postgres_url()  # skips, or fails under REQUIRE_ALL=1, where there is none
    output = StringIO()

    with django_db_blocker.unblock():
        call_command("bench", "scale", "--quick", "--json", stdout=output)

    results = {result["case"]: result for result in json.loads(output.getvalue())["results"]}
    assert len(results) == 5
    for case, result in results.items():
        assert result["value"] > 0, case
    assert results["requests, 2 web processes"]["failed"] == 0
    assert results["requests, 2 web processes"]["ratio"] > 0
    assert results["events on PostgreSQL, 4 writers"]["peer"] == "1 writer"
    polls = results["200 registered devices poll, 12,288 experts"]
    assert polls["failed"] == 0
    assert polls["p95"] >= polls["value"]
