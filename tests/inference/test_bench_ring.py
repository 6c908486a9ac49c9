"""`manage.py bench ring`: its bound, and a run where llama.cpp's RPC backend is built."""

import json
from io import StringIO
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command

from inference.benchmarks.overhead import SideFailed
from inference.benchmarks.rig.site import cores
from inference.benchmarks.ring.bench import lanes_for, limit_of
from inference.benchmarks.rpc.servers import programs


def test_every_stage_has_a_micro_batch_and_lines_have_some_too() -> None:
    assert [lanes_for(batch, 3, 0.0) for batch in (1, 2, 32)] == [1, 2, 3]
    assert lanes_for(32, 3, 0.02) == 6


def test_one_micro_batch_is_bound_by_the_way_around_the_ring() -> None:
    assert limit_of(4, 1, [0.1, 0.1], 0.2) == pytest.approx(4 / 0.4)


def test_many_micro_batches_are_bound_by_the_slowest_stage_or_by_the_cores() -> None:
    expected = min(4 / 0.3, 4 * cores() / 0.4)

    assert limit_of(4, 100, [0.1, 0.3], 0.2) == pytest.approx(expected)


def test_without_the_peer_it_says_what_to_run(var_dir: Path) -> None:
    with pytest.raises(CommandError, match=r"run tools/build_rpc\.sh"):
        call_command("bench", "ring", "--quick")


@pytest.mark.e2e
def test_where_the_peer_was_built_rounds_alternate_and_everything_is_measured(var_dir: Path) -> None:
    built = settings.BASE_DIR / "var" / "bench" / "rpc"
    try:
        programs(built.parent)
    except SideFailed:
        pytest.skip("llama.cpp's RPC backend is not built here: tools/build_rpc.sh")
    (var_dir / "bench").mkdir()
    (var_dir / "bench" / "rpc").symlink_to(built)
    out = StringIO()

    call_command("bench", "ring", "--quick", "--json", stdout=out)

    results = {result["case"]: result for result in json.loads(out.getvalue())["results"]}
    assert set(results) == {f"2 stages, 5 ms, {what}" for what in ("batch 2", "first token", "next token")}
    throughput = results["2 stages, 5 ms, batch 2"]
    assert len(throughput["stage_seconds_alone"]) == 2
    assert 0.0 < throughput["efficiency"] < 1.5
    # Three lines of half a round trip each, and nothing comes sooner.
    assert results["2 stages, 5 ms, next token"]["value"] > results["2 stages, 5 ms, next token"]["limit"] == 0.0075
