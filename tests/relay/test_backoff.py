"""relay/backoff.py: clients that lose a relay together come back one by one."""

import random
from collections import Counter
from itertools import pairwise

import pytest

from relay.backoff import FIRST_SECONDS, LEAST_SECONDS, LONGEST_SECONDS, Backoff
from relay.frames import Role


@pytest.mark.parametrize("role", Role)
def test_a_thousand_clients_of_one_lost_relay_spread_over_the_whole_window(role: Role) -> None:
    chance = random.Random(1)

    delays = [Backoff(role, chance.random).next_seconds() for _ in range(1000)]

    window = FIRST_SECONDS[role] - LEAST_SECONDS
    tenths = Counter(int(10 * (delay - LEAST_SECONDS) / window) for delay in delays)
    assert len(tenths) == 10
    assert max(tenths.values()) < 150, "no tenth of the window meets more than 15% of them"


def test_the_window_doubles_with_every_failure_up_to_its_longest() -> None:
    backoff = Backoff(Role.WORKER, lambda: 1.0)

    windows = [backoff.next_seconds() for _ in range(30)]

    assert windows[:4] == [2.0, 4.0, 8.0, 16.0]
    assert set(windows[4:]) == {LONGEST_SECONDS}


def test_a_good_connection_starts_it_anew() -> None:
    backoff = Backoff(Role.BACKBONE, lambda: 1.0)
    for _ in range(5):
        backoff.next_seconds()

    backoff.reset()

    assert backoff.next_seconds() == FIRST_SECONDS[Role.BACKBONE]


def test_nobody_comes_back_at_once() -> None:
    assert Backoff(Role.WORKER, lambda: 0.0).next_seconds() > 0


def test_every_client_draws_anew_each_time() -> None:
    backoff = Backoff(Role.WORKER)

    delays = [backoff.next_seconds() for _ in range(20)]

    assert all(one != other for one, other in pairwise(delays))
