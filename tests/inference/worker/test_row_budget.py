"""The token bucket that makes a worker as slow as its owner, or a benchmark, wants it."""

import pytest

from inference.worker.row_budget import BURST_SECONDS, RowBudget


class Clock:
    """Time that only sleeping and `idle` move; every sleep lasts `overshoot` too long, as a real one may."""

    def __init__(self, overshoot: float = 0.0) -> None:
        self.now = 100.0
        self._overshoot = overshoot

    def __call__(self) -> float:
        return self.now

    def idle(self, seconds: float) -> None:
        self.now += seconds

    def sleep(self, seconds: float) -> None:
        self.now += seconds + self._overshoot


def budget(clock: Clock, rows_per_second: float = 50.0) -> RowBudget:
    return RowBudget(rows_per_second, clock=clock, sleep=clock.sleep)


def test_rows_take_the_time_that_the_rate_says() -> None:
    clock = Clock()
    bucket = budget(clock)

    for _ in range(10):
        bucket.spend(25)

    assert clock.now - 100.0 == pytest.approx(5.0, abs=BURST_SECONDS)


def test_a_sleep_that_lasts_too_long_is_made_up_for() -> None:
    clock = Clock(overshoot=0.005)
    bucket = budget(clock)

    for _ in range(100):
        bucket.spend(5)

    assert clock.now - 100.0 == pytest.approx(10.0, abs=0.03)


def test_an_idle_device_saves_up_next_to_nothing() -> None:
    clock = Clock()
    bucket = budget(clock)
    bucket.spend(50)
    clock.idle(60.0)
    began = clock.now

    bucket.spend(50)

    assert clock.now - began == pytest.approx(1.0 - BURST_SECONDS)
