"""`bench market`: every case is measured, on whichever databases there are."""

import json
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from pytest_django import DjangoDbBlocker

from market.benchmarks import databases
from market.benchmarks.measure import Latencies
from tests.market.databases import POSTGRES_HINT
from tests.requirements_check import need

CASES = ["append_projected", "replay_models", "claim_closed64", "claim_open50", "demand_map"]


def measured(django_db_blocker: DjangoDbBlocker) -> dict[str, dict[str, object]]:
    out = StringIO()
    with django_db_blocker.unblock():
        call_command("bench", "market", "--quick", "--json", stdout=out)
    return {result["case"]: result for result in json.loads(out.getvalue())["results"]}


@pytest.mark.slow
def test_the_quick_benchmark_measures_every_case_on_both_databases(
    var_dir: Path, django_db_blocker: DjangoDbBlocker
) -> None:
    with databases.postgres_server() as url:
        need("a PostgreSQL server", url, POSTGRES_HINT)

    results = measured(django_db_blocker)

    names = {name.split(" batch")[0] for name in results}
    assert names == {
        "replay_fold",
        "append postgresql",
        *(f"{case} {vendor}" for case in CASES for vendor in ("sqlite", "postgresql")),
    }
    assert results["append postgresql batch=10"]["peer"] == "eventsourcing"
    assert all(float(str(result["value"])) > 0 for result in results.values())
    assert results["replay_fold"]["met"] is True


def test_without_postgresql_one_line_says_so(
    var_dir: Path,
    django_db_blocker: DjangoDbBlocker,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("TEST_POSTGRES_URL", raising=False)
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.setattr(databases, "_programs", lambda: None)

    results = measured(django_db_blocker)

    assert not any("postgresql" in name for name in results)
    assert "postgresql is left out: apt-get install" in capsys.readouterr().err


def test_a_percentile_is_one_of_the_measured_values() -> None:
    found = Latencies(tuple(float(number) for number in range(100, 0, -1)), 1.0)

    assert (found.percentile(0.5), found.percentile(0.99), found.percentile(1.0)) == (51.0, 100.0, 100.0)
