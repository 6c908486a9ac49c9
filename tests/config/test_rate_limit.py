"""config/rate_limit.py: so much per window, counted for each asker, who is never stored."""

import pytest
from django.core.cache import cache

from config.rate_limit import asker, left, seconds_to_wait


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


def test_what_is_refused_is_not_counted_so_that_less_may_still_fit() -> None:
    waits = [
        seconds_to_wait("alice", 10, amount=amount, window_seconds=3600, clock=lambda: 7200.0)
        for amount in (8, 5, 2, 1)
    ]

    assert waits == [0, 3600, 0, 3600]
    assert left("alice", 10, window_seconds=3600, clock=lambda: 7200.0) == 0


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("unix:", "unix:", True),
    ],
)
def test_a_home_counts_as_one(one: str, other: str, same: bool) -> None:
    assert (asker(one, "salt") == asker(other, "salt")) is same


def test_the_digest_tells_no_address_and_depends_on_its_use() -> None:
    digest = asker("192.0.2.1", "salt")

    assert "192" not in digest
    assert digest != asker("192.0.2.1", "other")
