"""`manage.py hostile` in its short form: everything real."""

import json
import subprocess
import sys

import pytest

from tests.e2e.processes import ROOT


@pytest.mark.e2e
@pytest.mark.slow
def test_a_server_survives_a_minute_of_hostility() -> None:
    result = subprocess.run(
        [sys.executable, "manage.py", "hostile", "--quick", "--seed", "5", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    figures = json.loads(result.stdout)
    assert figures["problems"] == []
    assert result.returncode == 0
    assert figures["malformed_inputs"] == 1300
    assert figures["trespass"]["leaks"] == figures["thefts"]["worked"] == 0
    assert figures["thefts"]["tried"] > 30
    assert figures["sockets"]["opened"]["silent"] == figures["sockets"]["opened"]["idle"] == 20
    assert figures["tracebacks"] == {}
