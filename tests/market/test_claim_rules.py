"""market/claim_rules.py: the purse and what a grant says."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from market.claim_rules import Purse, RangeWish, grants, wished_runs, within_budget
from market.errors import AlreadyHeld, BudgetExhausted, OverSubscribed, RangeOutside
from market.events import layer_stream
from market.hours import first_hour_allowance
from market.placement import Run, best_runs
from tests.builders import DEMO_EXPERT_BYTES, FINGERPRINT, MORNING, demo_build, later
from tests.market.test_placement import claim_all, market_of


def run(price: int, layer: int = 0) -> Run:
    return Run(layer, 0, 4, 400, price, 10, 0)


@given(
    st.integers(0, 10**6),
    st.lists(st.tuples(st.integers(0, 3599), st.integers(0, 5 * 10**5), st.booleans()), max_size=20),
)
def test_neither_the_caps_nor_the_hour_ever_cost_more_than_the_budget(
    budget: int, story: list[tuple[int, int, bool]]
) -> None:
    """Claims come at random moments of an hour, and some end having earned all that they may."""
    reserved = owed = 0
    for second, price, ends in sorted(story):
        purse = Purse(budget, reserved, owed, later(second))
        try:
            (granted,) = within_budget([run(price)], purse, all_or_none=True)
        except BudgetExhausted:
            continue
        cap = granted.price_microcredits_per_hour
        owed += first_hour_allowance(cap, later(second))
        reserved += 0 if ends else cap
        assert 0 < cap <= price
        assert reserved <= budget
        assert owed <= budget


def test_caps_are_cut_to_what_is_left_and_a_purse_that_is_empty_refuses() -> None:
    purse = Purse(100, 40, 40, MORNING)

    cut = within_budget([run(50), run(50), run(50)], purse, all_or_none=False)

    assert [part.price_microcredits_per_hour for part in cut] == [20, 20, 20]
    with pytest.raises(BudgetExhausted):
        within_budget([run(50), run(1)], replace(purse, owed_this_hour=99), all_or_none=True)
    with pytest.raises(BudgetExhausted):
        within_budget([run(50)], replace(purse, reserved_microcredits_per_hour=100), all_or_none=False)


def test_grants_are_appended_in_the_order_of_streams_and_numbered_by_need() -> None:
    layers = [(2, 0, 4), (0, 8, 9), (0, 0, 2)]
    runs = [Run(layer, first, last, 100, 5, 10, 0) for layer, first, last in layers]

    events = grants(FINGERPRINT, "bob", runs, 6, {layer_stream(FINGERPRINT, 0): 11}, MORNING)

    assert [(event.layer, event.first, event.claim_id, event.fence) for event in events] == [
        (0, 0, 9, 12),
        (0, 8, 8, 13),
        (2, 0, 7, 1),
    ]


def test_wishes_are_checked_one_after_the_other() -> None:
    market = market_of(demo_build(layers=2, experts=8))
    market.replicas[1, 7] = market.policy.maximum_replicas

    assert [part.layer for part in wished_runs(market, [RangeWish(0, 0, 4), RangeWish(1, 0, 4)])] == [0, 1]
    with pytest.raises(AlreadyHeld):
        wished_runs(market, [RangeWish(0, 3, 5)])
    with pytest.raises(OverSubscribed):
        wished_runs(market, [RangeWish(1, 6, 8)])
    for wish in (RangeWish(2, 0, 1), RangeWish(0, 4, 4), RangeWish(0, 4, 9)):
        with pytest.raises(RangeOutside):
            wished_runs(market, [wish])


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 99))
def test_two_devices_that_ask_in_turn_come_to_rest(first: int, second: int, seed: int) -> None:
    """Nobody is offered anything for what it holds already: once both are full, nothing moves any more."""
    market = market_of(demo_build(layers=2, experts=16))
    market.rows_per_hour[:] = np.random.default_rng(seed).exponential(1000, (2, 16))
    free = [first * DEMO_EXPERT_BYTES, second * DEMO_EXPERT_BYTES]
    held = [np.zeros((2, 16), np.bool_), np.zeros((2, 16), np.bool_)]

    moves = []
    for turn in range(8):
        runs = best_runs(replace(market, held=held[turn % 2]), free[turn % 2], 64)
        claim_all(market, runs)
        for part in runs:
            held[turn % 2][part.layer, part.first : part.last] = True
            free[turn % 2] -= part.size_bytes
        moves.append(len(runs))

    assert moves[2:] == [0] * 6
