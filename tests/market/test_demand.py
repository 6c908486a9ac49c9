"""market/demand.py."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from market.demand import pack_counts, unpack_counts, updated_mean
from market.errors import BadRequest, BrokenHistory


@given(st.lists(st.integers(0, 2**40), min_size=6, max_size=6))
def test_counts_come_back_within_the_scale_they_were_divided_by(values: list[int]) -> None:
    counts = np.array(values).reshape(2, 3)

    packed, scale = pack_counts(counts)
    back = unpack_counts(packed, scale, 2, 3)

    assert ((counts - back >= 0) & (counts - back < scale)).all()


def test_counts_that_fit_into_16_bits_come_back_exactly() -> None:
    counts = np.array([[0, 1, 65_535]])

    packed, scale = pack_counts(counts)

    assert scale == 1
    assert unpack_counts(packed, scale, 1, 3).tolist() == [[0, 1, 65_535]]


@pytest.mark.parametrize(
    "counts", [np.zeros(3, int), np.zeros((2, 2)), np.array([[-1]]), np.zeros((0, 4), int)], ids=str
)
def test_it_refuses_what_cannot_be_counts(counts: np.ndarray) -> None:
    with pytest.raises(BadRequest):
        pack_counts(counts)


@pytest.mark.parametrize("packed", ["AAA=", "not base64", "AAAAAAAA"])
def test_a_body_of_another_size_is_broken(packed: str) -> None:
    with pytest.raises(BrokenHistory):
        unpack_counts(packed, 1, 1, 4)


@pytest.mark.parametrize("backbones", [1, 2, 5])
def test_what_several_backbones_see_of_the_same_hours_adds_up(backbones: int) -> None:
    window, rows = 300.0, np.array([[100.0]])
    mean, until = updated_mean(None, rows, window), window
    for number in range(1, 12 * 10 * backbones):
        end = window + number * window / backbones  # their reports come one after another, windows overlap
        mean, until = updated_mean(mean, rows, window, end - until), end

    # The first-order weight fades a little faster in many small steps than in a few large ones.
    assert mean[0, 0] == pytest.approx(1200.0 * backbones, rel=0.07)


def test_a_window_that_joins_the_last_one_counts_as_one_without_a_past() -> None:
    mean = updated_mean(None, np.array([[1200.0, 7.0]]), 300)

    joined = updated_mean(mean, np.array([[30.0, 11.0]]), 240, 240.0)

    np.testing.assert_array_equal(joined, updated_mean(mean, np.array([[30.0, 11.0]]), 240))


def test_the_mean_forgets_within_a_few_hours() -> None:
    mean = updated_mean(None, np.array([[1200.0]]), 300)
    for _ in range(12 * 5):
        mean = updated_mean(mean, np.array([[0.0]]), 300)

    assert 0 < mean[0, 0] < 0.01 * 1200 * 12
