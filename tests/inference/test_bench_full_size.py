"""inference/benchmarks/full_size at the size of the demo model: the arms that run on the big machine, end to end."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from inference.benchmarks.full_size.swarm import spent
from inference.benchmarks.rig.crowd import token_of
from inference.benchmarks.rig.door import claims_of
from inference.benchmarks.rig.placement import Member, even
from relay.records import TOKEN_LIMIT
from tests.model_files import DEMO_MODEL

ROOT = DEMO_MODEL.parent.parent


@pytest.fixture
def arm(tmp_path: Path) -> Any:
    def run(name: str, *arguments: str) -> dict[str, dict[str, Any]]:
        command = [sys.executable, "-m", "inference.benchmarks.full_size", name, "--model", str(DEMO_MODEL)]
        command += ["--out", str(tmp_path / "report.json"), "--folder", str(tmp_path / "work"), "--threads", "2"]
        done = subprocess.run([*command, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        report = json.loads((tmp_path / "report.json").read_text())
        assert report["bench"] == "full-size"
        return {case["case"]: case for case in report["results"]}

    return run


@pytest.mark.e2e
def test_workers_hold_everything_die_and_the_trace_replays_with_the_same_bits(arm: Any, tmp_path: Path) -> None:
    traces = ("--traces", str(tmp_path / "traces"))
    few = ("--steps", "2", "--rounds", "1", "--sequences", "4")

    arm("swarm", "--workers", "2", "--results", "exact,compact", *few)
    arm("churn", "--workers", "3", *few, *traces)
    cases = arm("exact", *traces)

    exact, compact = (cases[f"swarm/W=2/{name}/remote-only/rtt=0/seq=4"] for name in ("exact", "compact"))
    killed = cases["churn/W=3/exact/remote-only/rtt=0/seq=4"]
    (replayed,) = (case for name, case in cases.items() if name.startswith("exact/"))
    assert set(exact["places"]) == set(compact["places"]) == {"remote"}
    # Top 4 of 256 floats a row: four rows back in exact mode, at most one of halves per worker in compact mode.
    assert exact["bytes_per_token_and_layer"]["received"] == 4 * 256 * 4
    assert compact["bytes_per_token_and_layer"]["received"] <= 2 * 256 * 2
    assert 0 < exact["of_limit"] < 1
    assert (killed["killed"], killed["steps_with_missing_tokens"]) == (1, 0)
    assert replayed["max_abs_diff"] == 0.0
    assert replayed["positions"] > 0


@pytest.mark.e2e
def test_the_dense_arm_compares_batch_by_batch(arm: Any) -> None:
    cases = arm("dense", "--batches", "1,4", "--pairs", "1")

    assert set(cases) == {"m0/cpu/batch=1", "m0/cpu/batch=4"}
    assert all(case["ratio"] > 0.1 for case in cases.values())


@pytest.mark.parametrize("workers", [1, 4, 12])
def test_the_door_reads_what_a_worker_of_48_layers_holds(workers: int) -> None:
    for number, held in enumerate(even(range(48), 256, workers)):
        token = token_of(Member("rtt0", number, "", held))

        claims = claims_of(json.loads(token)["held"])

        assert len(token) <= TOKEN_LIMIT
        assert [(claim.layer, claim.first, claim.last) for claim in claims] == [tuple(one) for one in held]


def test_a_layer_is_split_into_waiting_computing_and_the_rest() -> None:
    answer = {
        "tokens": 8,
        "seconds": 0.4,
        "layers": {"calls": 16, "local_seconds": 0.08, "wait_seconds": 0.16},
        "moments": {"sent_bytes": 8 * 16 * 100, "received_bytes": 8 * 16 * 200},
        "places": {"remote": 64},
    }

    found = spent([answer], layers=16, lanes=1)

    assert found["ms_per_layer"] == {"all": 25.0, "local_experts": 5.0, "wait": 10.0, "rest": 10.0}
    assert found["bytes_per_token_and_layer"] == {"sent": 100, "received": 200}
