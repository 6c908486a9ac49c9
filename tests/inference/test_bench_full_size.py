"""inference/benchmarks/full_size at the size of the demo model: the arms that run on the big machine, end to end.

The pages are those of the whole shape: a file of 76 GB, which is a hole.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from inference.benchmarks.full_size import limits, parts
from inference.benchmarks.full_size.breakdown import spent
from inference.benchmarks.full_size.plan import Budget, Case, Plan
from inference.benchmarks.rig.crowd import token_of
from inference.benchmarks.rig.door import claims_of
from inference.benchmarks.rig.placement import Member, even
from inference.gguf_index import open_index
from inference.synthetic import full122b
from relay.records import TOKEN_LIMIT
from tests.model_files import DEMO_MODEL

ROOT = DEMO_MODEL.parent.parent


@pytest.fixture
def arm(tmp_path: Path) -> Any:
    def run(name: str, *arguments: str, model: Path = DEMO_MODEL) -> dict[str, dict[str, Any]]:
        command = [sys.executable, "-m", "inference.benchmarks.full_size", name, "--model", str(model)]
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
    killed = cases["churn/W=3/exact/fallback/rtt=0/seq=4"]
    (replayed,) = (case for name, case in cases.items() if name.startswith("exact/"))
    assert set(exact["places"]) == set(compact["places"]) == {"remote"}
    # Top 4 of 256 floats a row: four rows back in exact mode, at most one of halves per worker in compact mode.
    assert exact["bytes_per_token_and_layer"]["received"] == 4 * 256 * 4
    assert compact["bytes_per_token_and_layer"]["received"] <= 2 * 256 * 2
    assert 0 < exact["of_limit"] < 1
    assert min(exact["ms_per_layer"].values()) >= 0
    assert exact["ms_per_layer"]["wait"] > 0
    assert exact["memory_bytes"]["workers"]["processes"] == 2
    assert {name for name in cases if name.startswith("start/")} == {
        f"start/W=2/{mode}/hot=0GB" for mode in ("F32", "PARTIAL_F16")
    }
    assert (killed["killed"], killed["steps_with_missing_tokens"]) == (1, 0)
    assert replayed["max_abs_diff"] == 0.0
    assert replayed["positions"] > 0


@pytest.mark.e2e
def test_the_dense_arm_compares_batch_by_batch(arm: Any) -> None:
    cases = arm("dense", "--batches", "1,4", "--pairs", "1")

    assert set(cases) == {"m0/cpu/batch=1", "m0/cpu/batch=4"}
    assert all(case["ratio"] > 0.1 for case in cases.values())
    assert all(case["limit"] > 0 and case["plain_ms_per_layer"]["router"] > 0 for case in cases.values())


@pytest.mark.e2e
def test_the_whole_shape_is_indexed_published_and_shown(arm: Any, tmp_path: Path) -> None:
    hole = full122b(tmp_path / "hole.gguf", sparse=True)

    cases = arm("pages", model=hole)

    assert set(cases) == {
        f"pages/{name}" for name in ("index", "inspect", "publish", "heat map", "cells", "layer", "status")
    }
    assert cases["pages/index"]["experts"] == 48 * 256
    assert cases["pages/index"]["peak_bytes"] < 200e6
    assert cases["pages/index"]["value"] < 5.0
    assert cases["pages/publish"]["bytes"] < 10_000
    assert cases["pages/cells"]["bytes"] < 30_000


@pytest.mark.parametrize("workers", [1, 4, 12])
def test_the_door_reads_what_a_worker_of_48_layers_holds(workers: int) -> None:
    for number, held in enumerate(even(range(48), 256, workers)):
        token = token_of(Member("rtt0", number, "", held))

        claims = claims_of(json.loads(token)["held"])

        assert len(token) <= TOKEN_LIMIT
        assert [(claim.layer, claim.first, claim.last) for claim in claims] == [tuple(one) for one in held]


def test_a_layer_is_split_into_its_parts_and_what_is_left_is_the_dense_path() -> None:
    answer = {
        "tokens": 8,
        "seconds": 0.4,
        "head_seconds": 0.016,
        "layers": {
            "calls": 16, "local_seconds": 0.048, "fallback_seconds": 0.032, "wait_seconds": 9.0, "idle_seconds": 0.16,
            "dispatch_seconds": 0.016, "combine_seconds": 0.032,
        },
        "moments": {"sent_bytes": 8 * 16 * 100, "received_bytes": 8 * 16 * 200},
        "places": {"remote": 64},
    }  # fmt: skip
    alone = parts.Parts({"dense": 4.0, "router": 0.5, "experts": 9.0, "combine": 1.0}, head_ms=99.0)

    found = spent([answer], layers=16, lanes=1, alone=alone)

    assert found["ms_per_layer"] == {
        "all": 25.0, "dense": 5.5, "router": 0.5, "dispatch": 1.0, "wait": 10.0, "local_experts": 5.0, "combine": 2.0,
    }  # fmt: skip
    assert found["bytes_per_token_and_layer"] == {"sent": 100, "received": 200}


def test_plain_llama_cpp_tells_what_each_part_of_a_layer_takes() -> None:
    found = parts.measure(DEMO_MODEL, (1, 4), layers=8, threads=1, gpu_layers=0)

    assert set(found) == {1, 4}
    assert all(set(one.layer_ms) == {"dense", "router", "experts", "combine"} for one in found.values())
    assert all(min(one.layer_ms.values()) > 0 and one.head_ms > 0 for one in found.values())


def test_a_step_reads_the_dense_weights_and_the_experts_that_any_token_chose() -> None:
    index = open_index(DEMO_MODEL)

    touched = [limits.touched_bytes(index, batch) for batch in (1, 8, 1000)]

    assert touched[0] == pytest.approx(index.routed_bytes * index.experts_used / index.experts_per_layer)
    assert touched[0] < touched[1] < touched[2]
    assert touched[2] == pytest.approx(index.routed_bytes)
    assert 0 < limits.dense_bytes(index) < index.total_bytes - index.routed_bytes, "no table of embeddings"


def test_a_round_trip_bounds_few_sequences() -> None:
    index = open_index(DEMO_MODEL)
    held = even(index.offered_layers, index.experts_per_layer, 1)[0][0]

    slow, quick = (limits.swarm_limit(index, held, 1, 2, trip) for trip in (10_000, 0))

    assert slow == (2 / (8 * 10), "sequences / (layers x round trip)")
    assert quick.what == "experts alone, on 1 of the workers' cores"
    assert quick.tokens_per_second > 1


def test_what_would_not_end_in_time_is_left_out_and_named() -> None:
    budget, endless = Budget(60.0), Budget()

    allowed = [budget.allows("short"), budget.allows("long", expected=61.0)]
    budget.took(61.0)

    assert allowed == [True, False]
    assert not budget.allows("as long as the one before")
    assert budget.left_out == ["long", "as long as the one before"]
    assert endless.allows("anything", expected=1e6)


def test_one_backbone_serves_all_round_trips_and_only_exact_results_are_traced() -> None:
    cases = tuple(Case(64, trip, results) for results in ("exact", "compact") for trip in (0, 20))
    plan = Plan(DEMO_MODEL, Path(), (12,), cases, 4, 8.0, 2, 1, 16, trace="traces")

    (exact, its_cases), (compact, others) = plan.by_backbone(12, "ws://relay")

    assert [len(its_cases), len(others)] == [2, 2]
    assert exact.trace == "traces/swarm-w12-exact-remote-only"
    assert compact.trace == ""
