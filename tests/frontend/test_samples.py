"""frontend/samples.py: figures over time in rings of bounded length."""

import json

import pytest
import redis

from frontend import samples, tasks
from frontend.samples import Sample
from market import commands
from tests.builders import MORNING, claimed, demo_build, registered

pytestmark = pytest.mark.django_db


def sample(at: float, **changes: object) -> Sample:
    values: dict[str, object] = {
        "at": at,
        "tokens_per_second": 1.0,
        "active": 1,
        "waiting": 0,
        "rows": (0, 0, 0, 0),
        "tokens": 0,
        "moved_bytes": 0,
        "answer_p50": None,
        "answer_p99": None,
        "nodes": 0,
        "joined": 0,
        "left": 0,
        "spent": 0,
    }
    return Sample(**{**values, **changes})  # type: ignore[arg-type]


def test_a_sample_holds_what_the_server_says_now(swarm: "redis.Redis") -> None:
    taken = samples.take(swarm, now=1000.0)

    assert samples.read(swarm, 10) == [taken]
    assert (taken.at, taken.tokens_per_second, taken.active, taken.tokens) == (1000.0, 12.5, 3, 570)
    assert sum(taken.rows) > 0


def test_samples_of_a_version_with_other_fields_are_left_out(swarm: "redis.Redis") -> None:
    older = json.loads(samples.as_text(sample(900.0)))
    del older["spent"]
    swarm.lpush(samples.FINE_KEY, json.dumps(older))

    taken = samples.take(swarm, now=1000.0)

    assert samples.read(swarm, 10) == [taken]


def test_devices_that_come_and_go_are_counted_from_the_first_sample_on(swarm: "redis.Redis") -> None:
    commands.publish_build(demo_build(), now=MORNING)
    bob, carol = registered("Bob"), registered("Carol")
    claim = claimed(bob)
    samples.take(swarm)
    commands.release_claim(bob.node_id, claim.claim_id)
    claimed(carol, layer=1)

    taken = samples.take(swarm)

    assert (taken.nodes, taken.joined, taken.left) == (1, 1, 1)


def test_the_rings_stay_bounded_and_the_coarse_one_takes_every_twelfth(
    swarm: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "FINE_LENGTH", 5)
    monkeypatch.setattr(samples, "COARSE_LENGTH", 2)

    for number in range(36):
        samples.take(swarm, now=float(number))

    assert [one.at for one in samples.read(swarm, 60)] == [31.0, 32.0, 33.0, 34.0, 35.0]
    assert [one.at for one in samples.read(swarm, 1440)] == [23.0, 35.0]


def test_a_rate_is_growth_over_time_and_a_counter_that_fell_gives_none() -> None:
    found = [sample(0), sample(5), sample(10), sample(15)]

    assert samples.rates(found, [0, 50, 20, 30]) == [None, 10.0, None, 2.0]
    assert samples.quotients([0, 100, 100, 400], [0, 10, 10, 40]) == [None, 10.0, None, 10.0]


def test_spending_goes_on_over_the_full_hour() -> None:
    found = [sample(0, spent=9_000_000), sample(60, spent=10_000_000), sample(120, spent=1_000_000)]

    assert samples.spend_per_hour(found) == [None, 60.0, 60.0]


def test_percentiles_count_each_answer_at_its_workers_time() -> None:
    owners = [{"seconds": 0.01, "answers": 98}, {"seconds": 0.5, "answers": 2}, {"seconds": 9.0, "answers": 0}]

    assert samples.answer_percentiles(owners) == (10.0, 500.0)
    assert samples.answer_percentiles([]) == (None, None)


def test_the_task_takes_one_sample(swarm: "redis.Redis") -> None:
    tasks.sample()

    assert len(samples.read(swarm, 10)) == 1
