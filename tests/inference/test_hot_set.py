"""inference/hot_set.py: what stays here fills the wait and the bytes, and does not come and go."""

import numpy as np
import pytest

from inference.hot_set import HotBudget, pack_flags, plan_hot_set, unpack_flags
from inference.hot_set_meter import LayerLoads

BYTES = np.array([100, 100], np.int64)
NOBODY = np.zeros((2, 4), bool)
EVERYBODY = ~NOBODY
PLENTY = 10_000
# Experts of layer 0 take 4, 3, 2, 1 ms per call, those of layer 1 a tenth of it.
ROWS = np.array([[4.0, 3.0, 2.0, 1.0], [0.4, 0.3, 0.2, 0.1]])


def loads(rows: np.ndarray = ROWS, wait: float = 0.005) -> LayerLoads:
    return LayerLoads(rows, np.array([10.0, 10.0]), np.array([wait, wait]), np.array([0.001, 0.001]))


def test_the_most_used_experts_fill_the_wait_and_no_more() -> None:
    plan = plan_hot_set(loads(), EVERYBODY, BYTES, NOBODY, HotBudget(PLENTY))

    assert plan.flags.tolist() == [[True, False, False, True], [True] * 4]
    assert plan.seconds.tolist() == pytest.approx([0.005, 0.001])
    assert (plan.seconds <= plan.budget_seconds).all()
    assert plan.bytes == 600


def test_uncovered_experts_come_first_because_they_are_computed_here_anyway() -> None:
    covered = EVERYBODY.copy()
    covered[0, 1] = False  # 3 of the 5 ms

    plan = plan_hot_set(loads(), covered, BYTES, NOBODY, HotBudget(PLENTY))

    assert plan.flags[0].tolist() == [False, False, True, False]
    assert plan.seconds[0] == pytest.approx(0.005)


def test_bytes_go_to_the_experts_that_save_most_rows() -> None:
    plan = plan_hot_set(loads(wait=1.0), EVERYBODY, BYTES, NOBODY, HotBudget(250))

    assert np.argwhere(plan.flags).tolist() == [[0, 0], [0, 1]]
    assert plan.bytes == 200


def test_a_given_time_replaces_the_measured_wait() -> None:
    plan = plan_hot_set(loads(wait=9.0), EVERYBODY, BYTES, NOBODY, HotBudget(PLENTY, seconds=0.001, seconds_share=0.5))

    assert plan.budget_seconds.tolist() == [0.0005, 0.0005]
    assert plan.flags.tolist() == [[False] * 4, [True, False, False, True]]


def test_members_stay_while_newcomers_are_only_a_little_hotter() -> None:
    rows = np.array([[4.0, 4.8, 2.0, 1.0], [0.0] * 4])
    members = NOBODY.copy()
    members[0, 0] = True

    little = plan_hot_set(loads(rows), EVERYBODY, BYTES, members, HotBudget(PLENTY))
    rows[0, 0] = 3.0
    much = plan_hot_set(loads(rows), EVERYBODY, BYTES, members, HotBudget(PLENTY))

    assert little.flags[0].tolist() == [True, False, False, True]
    assert much.flags[0].tolist() == [False, True, False, False]


def test_noise_in_demand_and_wait_does_not_move_the_set() -> None:
    random = np.random.default_rng(7)
    base = 100.0 / np.arange(1, 257) ** 0.9
    rows, members, changes = np.tile(base, (8, 1)), np.zeros((8, 256), bool), []
    for _ in range(50):
        noisy = rows * random.uniform(0.95, 1.05, rows.shape)
        measured = LayerLoads(noisy, np.full(8, 5.0), random.uniform(0.095, 0.105, 8), np.full(8, 0.0002))
        plan = plan_hot_set(measured, np.ones((8, 256), bool), np.full(8, 100), members, HotBudget(1 << 30))
        changes.append(int((plan.flags ^ members).sum()))
        members = plan.flags

    assert members.sum() > 50
    assert sum(changes[10:]) <= 0.02 * members.sum() * len(changes[10:])


def test_where_ram_is_scarce_uncovered_experts_are_pinned_first() -> None:
    covered = EVERYBODY.copy()
    covered[1, 3] = False  # the least used of all

    plan = plan_hot_set(loads(wait=1.0), covered, BYTES, NOBODY, HotBudget(200, uncovered_first=True))

    assert np.argwhere(plan.flags).tolist() == [[0, 0], [1, 3]]


def test_nothing_asked_for_is_nothing_hot() -> None:
    plan = plan_hot_set(loads(np.zeros((2, 4))), EVERYBODY, BYTES, EVERYBODY, HotBudget(PLENTY))

    assert plan.experts == 0


def test_flags_survive_being_packed() -> None:
    flags = np.random.default_rng(1).random((3, 5)) < 0.5

    assert np.array_equal(unpack_flags(pack_flags(flags), 3, 5), flags)
    with pytest.raises(ValueError, match="no flags of 4 layers"):
        unpack_flags(pack_flags(flags), 4, 5)
