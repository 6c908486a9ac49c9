"""inference/rate_limit.py: so many requests per minute, counted for each asker."""

import pytest
from django.core.cache import cache

from inference.rate_limit import seconds_to_wait


@pytest.fixture(autouse=True)
def _nobody_has_asked() -> None:
    cache.clear()


def test_the_request_beyond_the_limit_waits_for_the_next_minute() -> None:
    waits = [seconds_to_wait("alice", 3, clock=lambda: 1_000_050.0) for _ in range(5)]

    assert waits == [0, 0, 0, 30, 30]


def test_a_new_minute_counts_anew_and_askers_are_apart() -> None:
    for _ in range(3):
        seconds_to_wait("alice", 3, clock=lambda: 1_000_050.0)

    assert seconds_to_wait("alice", 3, clock=lambda: 1_000_080.0) == 0
    assert seconds_to_wait("bob", 3, clock=lambda: 1_000_050.0) == 0


def test_the_wait_is_never_zero_for_who_must_wait() -> None:
    seconds_to_wait("alice", 1, clock=lambda: 1_000_079.99)

    assert seconds_to_wait("alice", 1, clock=lambda: 1_000_079.99) == 1
