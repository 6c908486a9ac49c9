"""inference/strain.py: missed rows and slow replicas as one number per expert."""

from collections.abc import Hashable

import numpy as np
import pytest

from inference.replica_table import Replica
from inference.strain import strain_of

SHAPE = (2, 8)
Times = dict[Hashable, tuple[float, float, int]]


def replica(session: int, layer: int, first: int, last: int) -> Replica:
    return Replica(session, f"node{session}", session, 1, layer, first, last, "ggml")


def rows(value: int) -> np.ndarray:
    return np.full(SHAPE, value, np.uint64)


def test_the_missed_share_is_the_strain_where_enough_was_asked_for() -> None:
    demand, missed = rows(100), rows(0)
    missed[0, 3] = 25
    demand[1, 1], missed[1, 1] = 4, 4

    found = strain_of(demand, missed, [], {})

    assert found[0, 3] == 0.25
    assert found.sum() == 0.25


def test_an_owner_is_slow_beside_the_others() -> None:
    replicas = [replica(1, 0, 0, 4), replica(2, 0, 4, 8), replica(3, 1, 0, 8)]
    times: Times = {1: (0.1, 0.0, 50), 2: (0.3, 0.0, 50), 3: (0.1, 0.0, 50)}

    found = strain_of(rows(100), rows(0), replicas, times)

    assert found[0, 4:].tolist() == pytest.approx([0.5] * 4)  # three times the median: half-way from two to four
    assert found[0, :4].sum() + found[1].sum() == 0.0


def test_the_best_replica_of_an_expert_counts() -> None:
    replicas = [replica(1, 0, 0, 8), replica(2, 0, 0, 4), replica(3, 1, 0, 8)]
    times: Times = {1: (0.9, 0.0, 50), 2: (0.1, 0.0, 50), 3: (0.1, 0.0, 50)}

    found = strain_of(rows(100), rows(0), replicas, times)

    assert found[0, :4].tolist() == [0.0] * 4
    assert found[0, 4:].tolist() == [1.0] * 4


def test_a_few_answers_judge_nobody() -> None:
    times: Times = {1: (9.0, 0.0, 2), 2: (0.1, 0.0, 50)}

    assert strain_of(rows(100), rows(0), [replica(1, 0, 0, 8)], times).sum() == 0.0
