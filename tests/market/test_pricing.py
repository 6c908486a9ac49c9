"""market/pricing.py: the properties that owners and operators rely on."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from market.policy import Policy
from market.pricing import hourly_prices, rate_per_teraflop, scarcity_table, work_price

BUDGET = 10**9
POLICIES = st.integers(1, 4).flatmap(
    lambda target: st.builds(Policy, target_replicas=st.just(target), maximum_replicas=st.integers(target, 10).map(int))
)
DEMANDS = st.lists(st.floats(0, 1e7), min_size=12, max_size=12).map(lambda values: np.array(values).reshape(2, 6))
COUNTS = st.lists(st.integers(0, 6), min_size=12, max_size=12).map(
    lambda values: np.array(values, np.uint16).reshape(2, 6)
)
SPOTS = st.tuples(st.integers(0, 1), st.integers(0, 5))


@given(DEMANDS, COUNTS, POLICIES, SPOTS)
def test_a_price_falls_at_once_when_somebody_claims(
    demand: np.ndarray, replicas: np.ndarray, policy: Policy, spot: tuple[int, int]
) -> None:
    before = hourly_prices(demand, replicas, policy, BUDGET)
    more = replicas.copy()
    more[spot] += 1

    after = hourly_prices(demand, more, policy, BUDGET)

    assert after[spot] < before[spot] or before[spot] == after[spot] == 0
    changed = np.ones_like(before, bool)
    changed[spot] = False
    assert (after[changed] == before[changed]).all()


@given(DEMANDS, COUNTS, POLICIES, SPOTS, st.floats(1, 1e7))
def test_a_price_never_falls_when_demand_for_its_expert_rises(
    demand: np.ndarray, replicas: np.ndarray, policy: Policy, spot: tuple[int, int], step: float
) -> None:
    before = hourly_prices(demand, replicas, policy, BUDGET)
    hotter = demand.copy()
    hotter[spot] += step

    after = hourly_prices(hotter, replicas, policy, BUDGET)

    assert after[spot] >= before[spot] - 1


def test_a_hot_expert_is_worth_more_than_a_cold_one() -> None:
    demand = np.array([[0.0, 100.0, 1000.0]])

    prices = hourly_prices(demand, np.zeros((1, 3), np.uint16), Policy(), BUDGET)[0].tolist()

    assert prices == sorted(prices)
    assert prices[0] > 0


@given(DEMANDS, POLICIES)
def test_all_replicas_that_could_be_claimed_cost_no_more_than_the_budget(demand: np.ndarray, policy: Policy) -> None:
    total = 0
    for count in range(policy.maximum_replicas):
        prices = hourly_prices(demand, np.full((2, 6), count, np.uint16), policy, BUDGET)
        assert (prices >= 0).all()
        total += int(prices.sum())

    assert 0.99 * BUDGET < total <= BUDGET


@given(DEMANDS, POLICIES)
def test_the_coldest_missing_replica_pays_more_than_the_hottest_extra_one(demand: np.ndarray, policy: Policy) -> None:
    last_missing = hourly_prices(demand, np.full((2, 6), policy.target_replicas - 1, np.uint16), policy, BUDGET)
    first_extra = hourly_prices(demand, np.full((2, 6), policy.target_replicas, np.uint16), policy, BUDGET)

    assert last_missing.min() > first_extra.max()


@given(DEMANDS, COUNTS, POLICIES)
def test_the_same_market_has_the_same_prices(demand: np.ndarray, replicas: np.ndarray, policy: Policy) -> None:
    first = hourly_prices(demand, replicas, policy, BUDGET)

    assert (first == hourly_prices(demand.copy(), replicas.copy(), replace(policy), BUDGET)).all()


@given(POLICIES)
def test_every_next_replica_is_worth_less_and_the_one_too_many_nothing(policy: Policy) -> None:
    table = scarcity_table(policy)

    assert len(table) == policy.maximum_replicas + 1
    assert (np.diff(table) < 0).all()
    assert table[-1] == 0
    assert abs(table.sum() - 1) < 1e-12


def test_expected_traffic_earns_the_hourly_price_and_no_traffic_the_ceiling() -> None:
    policy = Policy(price_ceiling_microcredits_per_teraflop=10_000_000)

    # 10^6 rows of 10^9 operations are 1,000 teraflop.
    assert rate_per_teraflop(5_000_000, 1e6, 10**9, policy) == 5_000
    assert rate_per_teraflop(5_000_000, 0, 10**9, policy) == 10_000_000
    assert rate_per_teraflop(5_000_000, 1e-9, 10**9, policy) == 10_000_000
    assert rate_per_teraflop(0, 1e6, 10**9, policy) == 1


def test_a_row_costs_its_operations_and_fractions_stay_with_the_treasury() -> None:
    assert work_price(rows=3, flops_per_row=393_216, rate_microcredits_per_teraflop=10_000_000) == 11
    assert work_price(rows=0, flops_per_row=393_216, rate_microcredits_per_teraflop=10_000_000) == 0
    assert work_price(rows=10**12, flops_per_row=10**9, rate_microcredits_per_teraflop=10**7) == 10**16
