import pytest

from inference.rate import RateMeter


def test_it_tells_a_steady_rate_from_the_beginning() -> None:
    meter = RateMeter(window_seconds=10.0)

    for tick in range(1, 41):
        meter.add(5, 100.0 + tick * 0.1)

    assert meter.per_second(104.0) == pytest.approx(50.0, rel=0.15)


def test_it_forgets_after_a_pause() -> None:
    meter = RateMeter(window_seconds=10.0)
    for tick in range(100):
        meter.add(5, tick * 0.1)

    assert meter.per_second(10.0) == pytest.approx(50.0, rel=0.15)
    assert meter.per_second(110.0) < 0.01


def test_it_is_zero_before_anything_happened() -> None:
    assert RateMeter().per_second(5.0) == 0.0
