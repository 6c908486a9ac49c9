"""`manage.py bench api`: what it prints, and a smoke run with real processes."""

import json
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command

from inference.benchmarks.api import Rounds, as_results
from inference.benchmarks.api.clients import unchunked
from inference.benchmarks.api.stack import Child
from inference.benchmarks.overhead import SideFailed


def test_a_case_holds_speed_against_the_engine_first_token_and_memory() -> None:
    rounds = Rounds(
        ours=[90.0, 95.0, 80.0],
        peers=[100.0, 100.0, 100.0],
        cpu_ratios=[0.95, 0.93, 0.9],
        first_token_seconds=[0.3, 0.1, 0.2],
        before={"web": 100_000_000},
        after={"web": 101_500_000},
    )

    speed, first = (result.to_json() for result in as_results(16, rounds))

    assert (speed["case"], speed["value"], speed["ratio"], speed["goal"], speed["met"]) == (
        "clients=16", 90.0, 0.9, 0.9, True,
    )  # fmt: skip
    assert speed["cpu_ratio"] == 0.93
    assert (speed["wrong_streams"], speed["memory_growth_megabytes"]) == (0, {"web": 1.5})
    assert (first["case"], first["value"], first["worst"]) == ("clients=16 first token", 0.2, 0.3)


def test_a_body_in_chunks_is_put_together() -> None:
    assert unchunked(b"5\r\nhello\r\nb\r\n, \r\nworld\r\n\r\n0\r\n\r\n") == b"hello, \r\nworld\r\n"


def test_a_child_that_dies_is_named_with_its_last_words(tmp_path: Path) -> None:
    command = ["sh", "-c", "echo of what it died >&2; exit 3"]

    with Child("backbone", command, {}, tmp_path / "log") as child, pytest.raises(SideFailed) as caught:
        child.ask(sequences=1)

    assert "backbone: ended with 3" in str(caught.value)
    assert "of what it died" in str(caught.value)


@pytest.mark.e2e
def test_a_smoke_run_measures_and_finds_every_token(var_dir: Path) -> None:
    output = StringIO()

    call_command("bench", "api", "--quick", "--json", stdout=output)

    speed, first = json.loads(output.getvalue())["results"]
    assert speed["case"] == "clients=4"
    assert speed["value"] > 0
    assert speed["peer_value"] > 0
    assert speed["wrong_streams"] == 0
    assert set(speed["memory_megabytes"]) == {"web", "backbone"}
    assert 0 < first["value"] < 60
