"""`manage.py bench rpc`: which layers go where, what to run where the backend is not built, and a run where it is."""

import json
from io import StringIO
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command

from inference.benchmarks.overhead import SideFailed
from inference.benchmarks.rpc.peer import Options, shares
from inference.benchmarks.rpc.servers import programs


def test_layers_are_spread_in_runs_over_the_servers() -> None:
    assert shares(tuple(range(8)), 3) == [(0, 1), (2, 3, 4), (5, 6, 7)]


def test_prompts_of_all_sequences_fit_into_one_batch() -> None:
    assert Options("m", "l", ("a:1",), "experts", 64).context.batch_tokens >= 4 * 64


def test_without_the_backend_it_says_what_to_run(var_dir: Path) -> None:
    with pytest.raises(CommandError, match=r"run tools/build_rpc\.sh"):
        call_command("bench", "rpc", "--quick")


def test_where_it_was_built_both_arms_are_measured_and_a_killed_worker_ends_only_the_peer(
    var_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = settings.BASE_DIR / "var" / "bench" / "rpc"
    try:
        programs(built.parent)
    except SideFailed:
        pytest.skip("llama.cpp's RPC backend is not built here: tools/build_rpc.sh")
    (var_dir / "bench").mkdir()
    (var_dir / "bench" / "rpc").symlink_to(built)
    out = StringIO()

    call_command("bench", "rpc", "--quick", "--json", stdout=out)

    results = {result["case"]: result for result in json.loads(out.getvalue())["results"]}
    assert results["experts/seq2"]["ratio"] > 0.3
    assert results["layers/seq2"]["peer_limit"] > results["layers/seq2"]["limit"]
    assert "died with its worker: ended with status" in results["killed/rpc/seq2"]["died"]
    assert results["killed/ours/seq2"]["died"] == ""
    assert results["killed/ours/seq2"]["value"] > 0
