"""What the dispatcher learns of an owner."""

import pytest

from inference.owners import (
    FIRST_CAP_BYTES,
    FIRST_PAUSE_SECONDS,
    LEAST_CAP_BYTES,
    LONGEST_PAUSE_SECONDS,
    SHORTEST_DEADLINE_SECONDS,
    Owner,
    Owners,
)


def test_an_unknown_owner_gets_the_longest_deadline() -> None:
    assert Owner().deadline_seconds(2.0) == 2.0


def test_a_steady_owner_gets_a_deadline_near_its_time() -> None:
    owner = Owner()
    for _ in range(100):
        owner.answered(0.5)

    assert owner.smoothed_seconds == pytest.approx(0.5)
    assert 0.5 <= owner.deadline_seconds(2.0) < 0.51


def test_a_fast_owner_is_still_given_the_shortest_deadline() -> None:
    owner = Owner()
    for _ in range(100):
        owner.answered(0.001)

    assert owner.deadline_seconds(2.0) == SHORTEST_DEADLINE_SECONDS


def test_failures_in_a_row_pause_an_owner_twice_as_long_up_to_a_bound() -> None:
    owner = Owner()
    pauses = []
    for _ in range(10):
        owner.failed(100.0)
        pauses.append(owner.paused_until - 100.0)

    assert pauses[:3] == [FIRST_PAUSE_SECONDS, 2 * FIRST_PAUSE_SECONDS, 4 * FIRST_PAUSE_SECONDS]
    assert pauses[-1] == LONGEST_PAUSE_SECONDS
    assert owner.cost(100.0) == float("inf")
    assert owner.cost(100.0 + LONGEST_PAUSE_SECONDS) == 0.0


def test_an_answer_ends_the_row_of_failures() -> None:
    owner = Owner()
    owner.failed(0.0)
    owner.failed(0.0)
    owner.answered(0.1)

    owner.failed(10.0)

    assert owner.paused_until == 10.0 + FIRST_PAUSE_SECONDS


def test_owners_that_left_are_forgotten() -> None:
    owners = Owners()
    owners.of(1).answered(0.1)
    owners.of(2).answered(0.1)

    owners.keep_only({2})

    assert [session for session, _ in owners.items()] == [2]


def test_the_cap_of_an_unknown_owner_is_the_first_one_and_then_its_rate_times_the_deadline() -> None:
    owner = Owner()
    assert owner.cap_bytes(2.0) == FIRST_CAP_BYTES

    for _ in range(50):
        owner.answered(1.0, 300_000)

    assert owner.cap_bytes(2.0) == pytest.approx(300_000 * owner.deadline_seconds(2.0))


def test_the_cap_opens_as_larger_steps_are_answered_and_closes_after_failures() -> None:
    owner = Owner()
    owner.answered(0.1, 10_000)
    small = owner.cap_bytes(2.0)
    owner.answered(0.12, 500_000)

    assert owner.cap_bytes(2.0) > 10 * small
    for number in range(30):
        owner.failed(float(number))
    assert owner.cap_bytes(2.0) == LEAST_CAP_BYTES
