"""market/hours.py: caps per clock hour."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from market.hours import SECONDS_PER_HOUR, allowance, first_hour_allowance, start_of_hour
from tests.builders import MORNING, later


def test_a_claim_that_begins_at_half_past_may_earn_half_of_its_cap_before_the_hour_ends() -> None:
    first = first_hour_allowance(1000, later(1800))

    assert first == 500
    assert allowance(1000, first, later(1800), MORNING) == 500
    assert allowance(1000, first, later(1800), later(3600)) == 1000


@given(st.integers(0, 10**12), st.lists(st.integers(0, SECONDS_PER_HOUR - 1), min_size=1, max_size=10))
def test_claims_that_follow_each_other_earn_no_more_than_one_cap_at_full_speed(cap: int, starts: list[int]) -> None:
    moments = [0, *sorted(starts), SECONDS_PER_HOUR]
    earned = sum(
        min(first_hour_allowance(cap, later(begin)), cap * (end - begin) // SECONDS_PER_HOUR)
        for begin, end in pairwise(moments)
        if begin < SECONDS_PER_HOUR
    )

    assert earned <= cap


def test_an_hour_begins_at_its_full_minute() -> None:
    assert start_of_hour(later(3599)) == MORNING
    assert start_of_hour(later(3600)) == later(3600)
