"""`bench relay --quick`: real servers, real clients, every case."""

import json
from io import StringIO

import pytest
from django.core.management import call_command

pytestmark = pytest.mark.e2e


def test_it_measures_both_servers_at_every_size_and_the_sessions() -> None:
    output = StringIO()

    call_command("bench", "relay", "--quick", "--json", stdout=output)

    results = {result["case"]: result for result in json.loads(output.getvalue())["results"]}
    for program in ("daphne", "uvicorn"):
        for size in ("6kB", "64kB", "512kB"):
            case = results[f"round trips {size}/{program}"]
            assert case["value"] > 0
            assert case["ratio"] > 0
            assert case["goal"] == 0.8
            assert case["echo_value"] > 0
        assert results[f"layer, 16 owners, batch 64/{program}"]["value"] > 0
    assert results["sessions, 50 idle"]["value"] < 1000
