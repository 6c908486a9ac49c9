"""Workers behind a NAT, through TLS on 443, on lines with latency, stalls and an outage: a small `demo m2`."""

import sqlite3
from pathlib import Path

import pytest

from inference.demos.m2 import Plan, replayed, show, site
from inference.demos.nat.network import missing
from tests.model_files import DEMO_MODEL
from tests.requirements_check import need

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

# Pings every second: a line that is gone for five is noticed, and its session replaced.
PLAN = Plan(round_trips=(20, 120), sequences=8, tokens=8, cut_seconds=5.0, stall_every=4.0, ping_seconds=1.0)
CREDITED = "SELECT count(DISTINCT json_extract(body, '$.node_id')) FROM market_event WHERE name = 'work-credited'"


def test_nated_workers_compute_survive_and_are_credited(tmp_path: Path) -> None:
    reason = missing()
    need("root, network namespaces and nginx", reason is None, reason or "")
    said: list[str] = []

    with site(DEMO_MODEL, tmp_path, PLAN) as here:
        figures = show(here, PLAN, said.append)
    figures = replayed(figures, tmp_path)

    assert figures.unreachable
    assert figures.max_abs_diff == 0.0
    assert figures.positions > 0
    assert figures.rows_remote > 0.1 * figures.rows_total
    assert figures.rows_after_cut > 0
    # Each worker's first session, and a new one after the outage.
    assert figures.sessions >= 3
    with sqlite3.connect(tmp_path / "var" / "expertswarm.sqlite3") as database:
        assert database.execute(CREDITED).fetchone()[0] == 2
