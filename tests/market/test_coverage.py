"""market/coverage.py."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from market.coverage import count_replicas, held_experts, summary

RANGES = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 15), st.integers(0, 16)).filter(lambda r: r[1] < r[2]), max_size=12
)


@given(RANGES)
def test_it_counts_like_a_loop_over_every_expert(ranges: list[tuple[int, int, int]]) -> None:
    expected = np.zeros((3, 16), np.uint16)
    for row, first, last in ranges:
        expected[row, first:last] += 1

    counted = count_replicas(ranges, 3, 16)

    assert counted.dtype == np.uint16
    assert (counted == expected).all()
    assert (held_experts(ranges, 3, 16) == (expected > 0)).all()


def test_the_summary_tells_what_is_missing() -> None:
    replicas = count_replicas([(0, 0, 4), (0, 2, 4)], 2, 4)

    found = summary(replicas, target=2)

    assert (found.experts, found.covered, found.at_target, found.least_replicas) == (8, 4, 2, 0)
    assert found.mean_replicas == 6 / 8
