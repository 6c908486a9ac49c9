"""market/targets.py: more replicas of what is in demand, never more than there is room for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from market.policy import Policy
from market.targets import EXTRA_BLOCK, SPARE_REPLICAS, target_replicas

SIZES = np.array([100, 100, 130])


def demand(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).exponential(100.0, (3, 20))


def replicas(seed: int, most: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, most + 1, (3, 20)).astype(np.uint16)


@given(st.integers(0, 999), st.integers(0, 20), st.integers(1, 3), st.integers(0, 100))
def test_targets_stay_below_the_share_of_what_is_held(seed: int, most: int, target: int, percent: int) -> None:
    policy = Policy(target_replicas=target, maximum_replicas=8, target_bytes_percent=percent)
    held = replicas(seed, most)

    targets = target_replicas(demand(seed), SIZES, held, policy)

    assert targets.min() >= target
    assert targets.max() <= max(target, 8 - SPARE_REPLICAS)
    if targets.max() > target:
        assert (targets * SIZES[:, None]).sum() <= (held * SIZES[:, None]).sum() * percent / 100
    assert (targets == target_replicas(demand(seed), SIZES, held.copy(), policy)).all()


@given(st.integers(0, 999), st.integers(0, 2), st.integers(0, 19), st.floats(1, 1e6))
def test_a_target_never_falls_when_demand_for_its_expert_rises(seed: int, row: int, expert: int, step: float) -> None:
    held, asked = replicas(seed, 8), demand(seed)
    hotter = asked.copy()
    hotter[row, expert] += step

    before = target_replicas(asked, SIZES, held, Policy())[row, expert]
    after = target_replicas(hotter, SIZES, held, Policy())[row, expert]

    # Bytes differ from layer to layer, so the very last extra may be one that no longer fits.
    assert after >= before - (len(set(SIZES.tolist())) > 1 and after == before - 1)


def test_the_hottest_block_gets_the_first_extra_and_neighbours_share_it() -> None:
    asked = np.zeros((1, 16))
    asked[0, 10] = 5.0
    held = np.full((1, 16), 2, np.uint16)

    targets = target_replicas(asked, np.array([100]), held, Policy(target_bytes_percent=75))

    assert targets[0].tolist() == [1] * EXTRA_BLOCK + [2] * EXTRA_BLOCK


@pytest.mark.parametrize("percent", [0, 68])
def test_without_demand_or_room_everything_has_the_same_target(percent: int) -> None:
    policy = Policy(target_bytes_percent=percent)

    assert (target_replicas(np.zeros((3, 20)), SIZES, replicas(1, 9), policy) == 1).all()
    assert (target_replicas(demand(1), SIZES, np.ones((3, 20), np.uint16), policy) == 1).all()
