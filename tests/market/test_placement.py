"""market/placement.py: devices spread over what is missing, best paid first."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from market.builds import BuildDescription
from market.errors import BudgetTooSmall, FullyCovered, TypesUnsupported
from market.placement import RUN_LIMIT, BuildMarket, Run, best_runs, presets, rank_runs, why_no_runs
from market.policy import Policy
from tests.builders import DEMO_EXPERT_BYTES, demo_build


def market_of(build: BuildDescription, *, policy: Policy | None = None) -> BuildMarket:
    shape = (len(build.layers), build.experts_per_layer)
    return BuildMarket(
        build=build,
        replicas=np.zeros(shape, np.uint16),
        rows_per_hour=np.zeros(shape),
        held=np.zeros(shape, np.bool_),
        computable=np.ones(shape[0], np.bool_),
        policy=policy or Policy(),
        budget_microcredits_per_hour=10**9,
    )


def claim_all(market: BuildMarket, runs: list[Run]) -> None:
    for run in runs:
        market.replicas[run.layer, run.first : run.last] += 1


@pytest.mark.parametrize("experts", [(85, 85, 86), (86, 85, 85), (64, 64, 128), (1, 100, 155), (7, 120, 129)])
def test_three_devices_that_together_hold_everything_cover_every_expert_once(experts: tuple[int, int, int]) -> None:
    market = market_of(demo_build(layers=8, experts=32))

    for count in experts:
        runs = best_runs(market, count * DEMO_EXPERT_BYTES, 64)
        assert sum(run.last - run.first for run in runs) == count
        claim_all(market, runs)

    assert (market.replicas == 1).all()


@given(st.lists(st.integers(1, 80), min_size=1, max_size=12), st.integers(0, 2**32 - 1), st.integers(1, 2))
def test_nobody_holds_an_expert_twice_while_another_has_nobody(budgets: list[int], seed: int, target: int) -> None:
    market = market_of(demo_build(layers=3, experts=16), policy=Policy(target_replicas=target))
    market.rows_per_hour[:] = np.random.default_rng(seed).exponential(1000, (3, 16))

    for count in budgets:
        claim_all(market, best_runs(market, count * DEMO_EXPERT_BYTES, 64))
        if market.replicas.max() > market.replicas.min() + 1:
            assert market.replicas.min() >= target

    assert market.replicas.max() <= market.policy.maximum_replicas


def test_after_everything_is_covered_a_device_takes_the_hottest_experts() -> None:
    market = market_of(demo_build(layers=2, experts=8))
    market.replicas[:] = 1
    market.rows_per_hour[1, 3:5] = 1000.0

    (run,) = best_runs(market, 2 * DEMO_EXPERT_BYTES, 64)

    assert (run.layer, run.first, run.last) == (1, 3, 5)


def test_a_device_never_gets_what_it_holds_and_nobody_gets_one_replica_too_many() -> None:
    market = market_of(demo_build(layers=1, experts=4), policy=Policy(maximum_replicas=2))
    market.replicas[0] = [1, 1, 2, 0]
    market.held[0, 0] = True

    runs = best_runs(market, 10**9, 64)

    assert [(run.first, run.last) for run in runs] == [(3, 4), (1, 2)]


def test_a_run_is_no_longer_than_the_limit_and_there_are_no_more_than_asked_for() -> None:
    market = market_of(demo_build(layers=2, experts=200))

    runs = best_runs(market, 10**12, 4)

    assert [run.last - run.first for run in runs] == [RUN_LIMIT] * 4
    assert len({(run.layer, run.first) for run in runs}) == 4


def test_forty_two_megabytes_hold_seven_experts_of_the_large_model_and_not_eight() -> None:
    market = market_of(demo_build(layers=48, experts=256, expert_bytes=5_308_416))

    (run,) = best_runs(market, 42_000_000, 64)

    assert run.last - run.first == 7
    assert run.size_bytes <= 42_000_000 < run.size_bytes + 5_308_416


def test_layers_of_other_sizes_get_runs_that_really_fit() -> None:
    build = replace(demo_build(layers=2, experts=8), expert_bytes=(100, 300))
    market = market_of(build)

    runs = best_runs(market, 1500, 64)

    assert sum(run.size_bytes for run in runs) <= 1500
    assert [(run.layer, run.last - run.first) for run in runs] == [(0, 8), (1, 2)]


def test_the_list_of_offers_is_ranked_by_need_and_then_by_reward_per_megabyte() -> None:
    build = replace(demo_build(layers=3, experts=4), expert_bytes=(100, 50, 100))
    market = market_of(build)
    market.replicas[2] = 1
    market.rows_per_hour[2] = 10_000.0

    ranked = rank_runs(market, 400)

    assert [run.layer for run in ranked] == [1, 0, 2]
    assert [run.replicas for run in ranked] == [0, 0, 1]


def test_why_there_is_nothing() -> None:
    market = market_of(demo_build(layers=1, experts=4))

    too_small = why_no_runs(market, DEMO_EXPERT_BYTES - 1)
    assert isinstance(too_small, BudgetTooSmall)
    assert too_small.minimum_bytes == DEMO_EXPERT_BYTES
    assert best_runs(market, DEMO_EXPERT_BYTES - 1, 64) == []
    assert rank_runs(market, DEMO_EXPERT_BYTES - 1) == []
    market.replicas[:] = market.policy.maximum_replicas
    assert isinstance(why_no_runs(market, 10**9), FullyCovered)
    market.computable[:] = False
    assert isinstance(why_no_runs(market, 10**9), TypesUnsupported)
    assert best_runs(market, 10**9, 64) == []


def test_presets_are_whole_experts_of_real_size() -> None:
    build = demo_build(layers=8, experts=32)

    assert presets(build)[:3] == [(1, 110_592), (2, 221_184), (4, 442_368)]
    assert presets(build)[-1] == (256, 256 * 110_592)
    assert [experts for experts, _ in presets(demo_build(layers=1, experts=3))] == [1, 2, 3]
