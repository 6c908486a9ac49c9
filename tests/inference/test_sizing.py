"""inference/sizing.py and `manage.py size`: bounds by hand, and against what was measured."""

import json
from dataclasses import replace
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from inference.gguf_index import open_index
from inference.sizing import ModelShape, Swarm, shape_of, size
from tests.inference.models import DEMO_MODEL

BIG = ModelShape("big", layers=48, experts=256, used=8, n_embd=3072, row_bytes=3120.0, expert_bytes=5_308_416.0)
PHONES = Swarm(workers=2000, rows_per_second=300.0, rtt_seconds=0.1, sequences=480, lanes=4)


def rates(shape: ModelShape, swarm: Swarm) -> dict[str, float]:
    return {bound.name: bound.tokens_per_second for bound in size(shape, swarm).bounds}


def test_round_trips_and_workers_are_bounds_by_hand() -> None:
    found = rates(BIG, PHONES)

    assert found["round trips"] == pytest.approx(480 / (48 * 0.1))
    assert found["workers"] == pytest.approx(2000 * 300 / (48 * 8))


def test_the_least_bound_holds_and_says_how_many_sequences_would_help() -> None:
    found = size(BIG, PHONES)

    assert found.binding.name == "round trips"
    assert found.sequences_wanted == round(2000 * 300 / 384 * 48 * 0.1)
    enough = size(BIG, replace(PHONES, sequences=found.sequences_wanted + 1))
    assert enough.binding.name == "workers"


@pytest.mark.parametrize(("lanes", "measured"), [(1, 292.0), (8, 310.0)])
def test_lanes_compute_while_others_wait_as_it_was_measured(lanes: int, measured: float) -> None:
    shape = replace(BIG, layers=4)
    swarm = Swarm(100, 1e9, 0.05, sequences=64, lanes=lanes, tokens_per_second=3300.0)

    assert size(shape, swarm).binding.tokens_per_second == pytest.approx(measured, rel=0.03)


def test_bytes_per_token_are_those_of_the_design() -> None:
    one_owner = replace(PHONES, workers=48, worker_bytes=int(256 * BIG.expert_bytes), up_bytes=1e6, down_bytes=1e6)
    exact, sums = size(BIG, one_owner), size(BIG, replace(one_owner, results="sums-f16"))

    assert exact.owners < 4.5  # 48 workers of 256 experts in runs of 64: four workers per layer
    assert exact.received_bytes / 48 == pytest.approx(8 * 3072 * 4, rel=0.01)
    assert sums.received_bytes / exact.received_bytes < 0.3
    assert exact.sent_bytes / 48 == pytest.approx(exact.owners * (3120 + 32) + 32, rel=0.01)


def test_a_slow_line_is_the_bound_and_more_backbones_share_it_not() -> None:
    slow = replace(PHONES, sequences=100_000, up_bytes=1e6, down_bytes=1e9)

    one, two = size(BIG, slow), size(BIG, replace(slow, backbones=2))

    assert (one.binding.name, two.binding.name) == ("uplink", "uplink")
    assert two.binding.tokens_per_second == pytest.approx(2 * one.binding.tokens_per_second)


def test_what_nobody_holds_and_what_is_hot_goes_to_no_worker() -> None:
    half = replace(PHONES, worker_bytes=int(3.1 * BIG.expert_bytes), hot_share=0.25)

    found = size(BIG, half)

    assert found.coverage == pytest.approx(2000 * 3 / (48 * 256))
    assert found.remote_share == pytest.approx(0.75 * found.coverage)
    assert rates(BIG, half)["workers"] == pytest.approx(2000 * 300 / (384 * found.remote_share))


def test_without_workers_only_the_backbone_is_a_bound() -> None:
    alone = Swarm(0, 1.0, 0.1, sequences=8, lanes=1, tokens_per_second=50.0)

    found = size(BIG, alone)

    assert (found.binding.name, found.binding.tokens_per_second, found.sent_bytes) == ("backbone", 50.0, 0.0)


def test_the_shape_comes_from_the_file() -> None:
    shape = shape_of(open_index(DEMO_MODEL))

    assert (shape.layers, shape.experts, shape.used) == (8, 32, 4)
    assert shape.row_bytes == shape.n_embd / 256 * 260


def run(*arguments: str) -> str:
    out = StringIO()
    call_command("size", str(DEMO_MODEL), *arguments, stdout=out)
    return out.getvalue()


def test_the_command_prints_bounds_and_json() -> None:
    arguments = ("--workers", "3", "--rows-per-second", "1000", "--rtt-ms", "20", "--uplink", "1MB")

    table = run(*arguments)
    body = json.loads(run(*arguments, "--json"))

    assert "limited by: " + body["binding"] in table
    assert {bound["name"] for bound in body["bounds"]} == {"round trips", "workers", "uplink"}
    assert body["tokens_per_second"] == min(bound["tokens_per_second"] for bound in body["bounds"])
    assert body["model"]["layers"] == 8


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--workers", "x"), "no whole number"),
        (("--workers", "1", "--rtt-ms", "0"), "no positive number"),
        (("--workers", "1", "--rtt-ms", "1", "--rows-per-second", "1", "--worker-memory", "1kB"), "too small"),
        (("--workers", "1", "--rtt-ms", "1", "--rows-per-second", "1", "--hot-share", "2"), "from 0 to 1"),
    ],
)
def test_the_command_refuses_what_makes_no_sense(arguments: tuple[str, ...], told: str) -> None:
    with pytest.raises(CommandError, match=told):
        run(*arguments)
