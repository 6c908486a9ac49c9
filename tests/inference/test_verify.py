"""`verify` and its parts: replays, worker processes over socket pairs, judging, the command."""

import json
import queue
import threading
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.core.management import CommandError, call_command

from inference.engine import Engine
from inference.generation import GenerationRequest, TokenEvent
from inference.gguf_index import open_index
from inference.kernel import CpuRuntime, GgmlKernel
from inference.sampling import SamplingParameters
from inference.slices import plan_slice, write_slice
from inference.trace import logits_path
from inference.verify import runner
from inference.verify.cases import FULL, MIN_POSITIONS, Case, holdings
from inference.verify.divergence import divergence
from inference.verify.local_swarm import FENCE, LocalSwarm, Range, WorkerNotStarted
from inference.verify.reference import compare
from inference.verify.replay import max_abs_diff
from relay.work import Dispatch, Failed, Outcome, Result
from tests.inference.models import DEMO_MODEL, tokens_of

SMALL = Case("small", sequences=2, requests=3, tokens=8, workers=1)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A trace of two answers of ten tokens, with a join and a leave."""
    engine = Engine(DEMO_MODEL, sequences=2, context_tokens=64, threads=1, trace_dir=tmp_path)
    engine.start()
    left = threading.Semaphore(0)

    def listen(event: TokenEvent) -> None:
        if event.finish is not None:
            left.release()

    for number, text in enumerate(("Once upon a time", "My dear sister, I have")):
        sampling = SamplingParameters(seed=number, max_tokens=10 + number, ignore_eos=True)
        engine.submit(GenerationRequest(str(number), tokens_of(text), sampling), listen)
    for _ in range(2):
        assert left.acquire(timeout=30)
    engine.stop()
    return tmp_path / "lane-0.jsonl"


# --- replay -----------------------------------------------------------------------------------------------------------
def test_plain_llama_cpp_repeats_a_trace_bit_by_bit(trace: Path) -> None:
    result = runner.run_trace(trace)

    assert result.ok, result.extra
    assert (result.kind, result.positions, result.max_abs_diff) == ("exact", 21, 0.0)
    assert result.extra["largest_batch"] == 2


def test_one_bit_of_one_logit_is_noticed(trace: Path) -> None:
    rows = np.fromfile(logits_path(trace), np.uint32)
    rows[5000] ^= 1
    rows.tofile(logits_path(trace))

    result = runner.run_trace(trace)

    assert not result.ok
    assert result.max_abs_diff is not None
    assert 0 < result.max_abs_diff < 1e-5
    assert "differ" in result.extra["error"]


def test_a_trace_of_another_model_is_refused(trace: Path) -> None:
    lines = trace.read_text().splitlines()
    header = json.loads(lines[0])
    header["fingerprint"] = "0" * 32
    trace.write_text("\n".join([json.dumps(header), *lines[1:]]) + "\n")

    result = runner.run_trace(trace)

    assert not result.ok
    assert "not the model" in result.extra["error"]


def test_a_difference_that_is_no_number_is_reported_without_one(trace: Path) -> None:
    rows = np.fromfile(logits_path(trace), np.float32)
    rows[5000] = np.nan
    rows.tofile(logits_path(trace))

    result = runner.run_trace(trace)

    assert not result.ok
    assert json.loads(json.dumps(result.to_json(), allow_nan=False))["max_abs_diff"] is None


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ([1.0, 2.0], [1.0, 2.5], 0.5),
        ([np.inf], [np.inf], 0.0),
        ([np.nan], [1.0], np.inf),
        ([np.inf], [1.0], np.inf),
        ([], [], 0.0),
    ],
)
def test_the_largest_difference(ours: list[float], theirs: list[float], expected: float) -> None:
    assert max_abs_diff(np.array(ours, np.float32), np.array(theirs, np.float32)) == expected


# --- worker processes -------------------------------------------------------------------------------------------------
def dispatch(worker: int, layer: int, rows: Any, pairs: list[tuple[int, int]], claim: int = 1) -> Dispatch:
    return Dispatch(worker, layer, FENCE, claim, 0, rows, np.array(pairs, np.uint16))


def ask(swarm: LocalSwarm, request: Dispatch) -> Outcome:
    answers: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
    swarm.submit_many([(request, answers.put)])
    return answers.get(timeout=30)


def test_a_worker_process_computes_its_slice_until_it_is_killed(tmp_path: Path) -> None:
    index = open_index(DEMO_MODEL)
    rows = np.random.default_rng(0).standard_normal((2, index.n_embd), np.float32)
    pairs = [(0, 4), (1, 4), (1, 7)]
    write_slice(plan_slice(index, 2, 4, 8), tmp_path / "own.gguf")
    with GgmlKernel.open(tmp_path / "own.gguf", CpuRuntime(1)) as kernel:
        expected = kernel.compute(rows[[0, 1, 1]], np.array([4, 4, 7], np.int32))

    with LocalSwarm(index, [[Range(2, 4, 8)], [Range(2, 4, 8)]], tmp_path) as swarm:
        answer = ask(swarm, dispatch(0, 2, rows, pairs))
        refused = ask(swarm, dispatch(0, 2, rows, pairs, claim=99))
        swarm.kill(0)
        late = ask(swarm, dispatch(0, 2, rows, pairs))
        other = ask(swarm, dispatch(1, 2, rows, pairs, claim=2))

    assert isinstance(answer, Result)
    assert np.array_equal(answer.values, expected)
    assert isinstance(refused, Failed)
    assert refused.code == "stale_fence"
    assert isinstance(late, Failed)
    assert late.code == "session_left"
    assert isinstance(other, Result)


def test_a_worker_that_cannot_open_its_slice_is_reported(tmp_path: Path) -> None:
    index = open_index(DEMO_MODEL)
    held = Range(2, 4, 8)
    (tmp_path / "layer-2-experts-4-8.gguf").write_bytes(b"not a slice")

    with pytest.raises(WorkerNotStarted), LocalSwarm(index, [[held]], tmp_path):
        pass


def test_the_table_names_every_range_of_every_worker(tmp_path: Path) -> None:
    index = open_index(DEMO_MODEL)

    with LocalSwarm(index, [[Range(0, 0, 16)], [Range(0, 0, 16)]], tmp_path) as swarm:
        layer = swarm.table.layer(0)

    assert layer is not None
    assert layer.counts.tolist() == [2] * 16 + [0] * 16


# --- cases ------------------------------------------------------------------------------------------------------------
def test_all_experts_are_held_once_for_every_replica() -> None:
    index = open_index(DEMO_MODEL)

    workers = holdings(replace(SMALL, workers=3, replicas=2), index)

    assert len(workers) == 6
    for layer in range(8):
        held = sorted(e for ranges in workers for r in ranges if r.layer == layer for e in range(r.first, r.last))
        assert held == sorted([*range(32)] * 2)


def test_half_of_the_experts_are_held_where_half_is_asked_for() -> None:
    workers = holdings(replace(SMALL, placement="half", workers=2), open_index(DEMO_MODEL))

    assert [ranges[0] for ranges in workers] == [(0, 0, 8), (0, 8, 16)]


def test_the_matrix_covers_what_was_promised() -> None:
    names = [case.name for case in FULL]

    assert len(set(names)) == len(names)
    assert {case.row_type for case in FULL if case.placement == "all"} == {"f32", "q8"}
    assert {1, 8, 9, 64} <= {case.sequences // case.lanes for case in FULL}
    for lanes in (1, 4):
        hot = [case for case in FULL if case.hot and case.kept and case.lanes == lanes]
        assert {case.sequences // case.lanes for case in hot} == {1, 8, 9, 64}
    assert any(case.kill for case in FULL)
    assert any(case.replicas == 2 for case in FULL)
    assert {"merged", "split", "Q4_K", "Q5_K", "Q6_K", "Q8_0", "MXFP4", "qwen3moe", "gpt-oss"} <= {
        case.model for case in FULL
    }
    assert all(case.requests * (case.tokens - 3) >= MIN_POSITIONS for case in FULL)


def test_a_case_survives_json() -> None:
    for case in FULL:
        assert Case.from_json(json.loads(json.dumps(case.to_json()))) == case


def test_killing_a_worker_in_the_middle_changes_no_bit(tmp_path: Path) -> None:
    case = replace(SMALL, workers=2, tokens=20, kill=True, remote=(0.1, 0.95))

    result = runner.run_case(case, tmp_path, positions=30)

    assert result.ok, result.extra
    assert result.max_abs_diff == 0.0
    # One for each time that its pause was over before the run was.
    assert set(result.extra["failures"]) == {"session_left"}
    assert list(tmp_path.iterdir()) == []


def test_workers_that_round_differently_are_noticed(tmp_path: Path) -> None:
    result = runner.run_case(replace(SMALL, kernel="numpy"), tmp_path, positions=10)

    assert not result.ok
    assert result.extra["remote_share"] == 1.0
    assert result.extra["error"] == "the logits differ from plain llama.cpp's"


# --- judging ----------------------------------------------------------------------------------------------------------
EQUAL = {"positions": 300, "tokens": 0, "decodes": 0, "largest_batch": 8, "max_abs_diff": 0.0, "equal_bits": True}
RUN = {
    "replayed_tokens": 0,
    "remote_share": 1.0,
    "places": {},
    "failures": {},
    "finishes": {"length": 3},
    "reused_tokens": 0,
}


@pytest.mark.parametrize(
    ("run", "trace", "told"),
    [
        ({"remote_share": 0.1}, {}, "workers computed 10.0%"),
        ({"finishes": {"error": 2}}, {}, "2 requests failed"),
        ({}, {"positions": 3}, "only 3 positions"),
        ({}, {"equal_bits": False}, "logits differ"),
    ],
)
def test_a_case_that_misses_something_says_what(run: dict[str, Any], trace: dict[str, Any], told: str) -> None:
    result = runner._judge(SMALL, RUN | run, [EQUAL | trace], positions=MIN_POSITIONS)

    assert not result.ok
    assert told in result.extra["error"]


@pytest.mark.parametrize(
    ("case", "told"),
    [
        (replace(SMALL, hot=True), "nothing was computed here because it is hot"),
        (replace(SMALL, kept=1), "no prompt went on from a kept state"),
    ],
)
def test_a_case_must_do_what_it_is_about(case: Case, told: str) -> None:
    result = runner._judge(case, RUN, [EQUAL], positions=MIN_POSITIONS)

    assert result.extra["error"] == told


def test_a_killed_worker_must_be_noticed() -> None:
    result = runner._judge(replace(SMALL, kill=True), RUN, [EQUAL], positions=MIN_POSITIONS)

    assert result.extra["error"] == "nobody noticed that a process was killed"


def test_a_replaced_stage_must_have_read_its_sequences_again() -> None:
    case, run = replace(SMALL, kill=True, stages=3), RUN | {"failures": {"line_broken": 1}}

    silent = runner._judge(case, run, [EQUAL], positions=MIN_POSITIONS)
    told = runner._judge(case, run | {"replayed_tokens": 12}, [EQUAL], positions=MIN_POSITIONS)

    assert silent.extra["error"] == "no token was read again after a stage was replaced"
    assert told.ok


def test_a_child_that_dies_by_a_signal_is_named() -> None:
    with pytest.raises(runner.ChildFailed, match="died by SIGKILL"):
        runner._child("tests.inference.dies_by_signal", [])


# --- reference --------------------------------------------------------------------------------------------------------
def test_the_stored_logits_are_met_within_their_limits() -> None:
    result = runner.run_reference()

    assert result.ok, result.to_json()
    assert (result.kind, result.positions) == ("reference", 64)


def test_logits_of_another_text_are_outside_the_limits() -> None:
    theirs = np.random.default_rng(0).standard_normal((8, 50)).astype(np.float32)

    assert compare(theirs, theirs)["ok"]
    assert not compare(theirs, theirs[::-1])["ok"]


def test_the_divergence_of_two_coins() -> None:
    theirs, ours = np.log(np.array([[[0.5, 0.5]], [[0.25, 0.75]]], np.float32))

    assert divergence(theirs, ours)[0] == pytest.approx(0.5 * np.log(2) + 0.5 * np.log(2 / 3), rel=1e-5)


# --- command ----------------------------------------------------------------------------------------------------------
def test_the_command_prints_one_object_for_a_trace(trace: Path) -> None:
    out = StringIO()

    call_command("verify", "--json", "--trace", str(trace), stdout=out)

    body = json.loads(out.getvalue())
    assert body["ok"] is True
    assert body["cases"][0].keys() >= {"case", "kind", "positions", "max_abs_diff", "kl_max", "top1_agreement"}


def test_the_command_fails_with_status_one_and_names_the_case(tmp_path: Path) -> None:
    out = StringIO()

    with pytest.raises(CommandError, match="1 of 1 cases failed") as caught:
        call_command("verify", "--trace", str(tmp_path / "nothing"), stdout=out)

    assert caught.value.returncode == 1
    assert "FAIL" in out.getvalue()
    assert "cannot read the trace" in out.getvalue()


@pytest.mark.slow
def test_the_quick_run_passes(var_dir: Path) -> None:
    out = StringIO()

    call_command("verify", "--quick", "--json", stdout=out)

    body = json.loads(out.getvalue())
    assert body["ok"], body
    assert {case["kind"] for case in body["cases"]} == {"exact", "reference", "compact"}
