"""SIGKILL before and after SQL statements, commits and the provider's file; then the same commands again.

The tests kill at some of the places, a different one for each number in their stride; every single place:
CRASH_DRILL_STRIDE=1 python -m pytest tests/market/test_crash_drill.py
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.market.databases import postgres_url

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("vendor", ["sqlite", "postgresql"])
@pytest.mark.parametrize("story", ["payout", "claim"])
def test_a_kill_at_any_place_and_a_repeat_end_where_no_kill_would_have_ended(
    story: str, vendor: str, tmp_path: Path
) -> None:
    url = postgres_url() if vendor == "postgresql" else ""
    stride = os.environ.get("CRASH_DRILL_STRIDE", "11" if vendor == "sqlite" else "41")
    result = tmp_path / "result.json"
    command = [sys.executable, "-m", "tests.market.drill", story, url, str(tmp_path), str(result), stride]
    environment = {**os.environ, "VAR_DIR": str(tmp_path), "REDIS_URL": "", "DATABASE_URL": ""}

    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    assert ended.returncode == 0, ended.stderr
    report = json.loads(result.read_text())
    print(f"{story} on {vendor}: killed {report['killed']} times among {report['places']} places")
    assert report["problems"] == [], ended.stderr
    assert report["killed"] >= 5
