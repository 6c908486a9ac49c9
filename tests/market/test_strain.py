"""market/strain.py: what backbones say of the replicas that are there, and what it does to prices and placement."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from django.core.cache import cache

from market import commands, snapshots, strain
from market.demand import felt_demand
from market.placement import BuildMarket, best_runs
from market.policy import Policy
from tests.builders import DEMO_EXPERT_BYTES, FINGERPRINT, demo_build

NOW = datetime(2026, 11, 29, 8, 0, tzinfo=UTC)
SHAPE = (8, 32)


@pytest.fixture(autouse=True)
def _nothing_said() -> None:
    cache.clear()


def bad(*places: tuple[int, int, int]) -> np.ndarray:
    found = np.zeros(SHAPE)
    for layer, first, last in places:
        found[layer, first:last] = 1.0
    return found


def test_nobody_has_spoken_and_nothing_is_strained() -> None:
    assert strain.of(FINGERPRINT, SHAPE) is None


def test_the_mean_over_backbones_counts_and_old_words_do_not() -> None:
    strain.note(FINGERPRINT, "long ago", bad((1, 0, 32)), NOW - timedelta(seconds=strain.KEPT_SECONDS + 1))
    strain.note(FINGERPRINT, "alice", bad((2, 4, 8)), NOW)
    strain.note(FINGERPRINT, "bob", bad(), NOW)
    strain.note(FINGERPRINT, "bob", bad((3, 0, 1)), NOW)

    found = strain.of(FINGERPRINT, SHAPE)

    assert found is not None
    assert found[1].sum() == 0.0
    assert (found[2, 4:8] == 0.5).all()
    assert found[3, 0] == 0.5
    assert strain.of(FINGERPRINT, (8, 31)) is None


def demand_everywhere(**changes: object) -> BuildMarket:
    market = BuildMarket(
        build=demo_build(),
        replicas=np.ones(SHAPE, np.uint16),
        rows_per_hour=np.full(SHAPE, 1000.0),
        held=np.zeros(SHAPE, np.bool_),
        computable=np.ones(8, np.bool_),
        policy=Policy(),
        budget_microcredits_per_hour=10**9,
    )
    return replace(market, **changes)  # type: ignore[arg-type]


def test_where_workers_do_not_serve_a_replica_is_worth_more_and_is_taken_next() -> None:
    calm, strained = demand_everywhere(), demand_everywhere(strain=bad((5, 8, 16)))

    before, after = best_runs(calm, 8 * DEMO_EXPERT_BYTES, 1)[0], best_runs(strained, 8 * DEMO_EXPERT_BYTES, 1)[0]

    assert (before.layer, before.first) == (0, 0)
    assert (after.layer, after.first, after.last) == (5, 8, 16)
    assert after.price_microcredits_per_hour > 1.3 * before.price_microcredits_per_hour
    assert after.rate_microcredits_per_teraflop >= before.rate_microcredits_per_teraflop


def test_targets_follow_too() -> None:
    roomy = Policy(target_replicas=1, maximum_replicas=8, target_bytes_percent=95)
    replicas = np.full(SHAPE, 2, np.uint16)

    targets = demand_everywhere(strain=bad((5, 8, 16)), policy=roomy, replicas=replicas).targets

    assert targets[5, 8:16].min() >= 3
    assert targets[5, 8:16].min() > targets[4].min()


def test_without_strain_demand_is_what_it_is() -> None:
    rows = np.full(SHAPE, 7.0)

    assert felt_demand(rows, None) is rows
    assert np.array_equal(felt_demand(rows, bad()), rows)


@pytest.mark.django_db
def test_what_a_backbone_says_reaches_the_market_that_devices_see() -> None:
    commands.publish_build(demo_build())

    commands.note_strain(FINGERPRINT, "alice", bad((0, 0, 4)))
    market = snapshots.build_market(FINGERPRINT, None)

    assert market.strain is not None
    assert np.argwhere(market.strain).tolist() == [[0, expert] for expert in range(4)]
