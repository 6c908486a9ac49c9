"""A ceiling on how many rows a worker computes in a second: a token bucket. A row is one (token, expert) pair.

For owners who lend a share of a busy machine, and for benchmarks: many workers on one host, each as slow as a phone.
"""

import time
from collections.abc import Callable

# What an idle worker may save up: little, so that a rate is kept within any tenth of a second.
BURST_SECONDS = 0.02


class RowBudget:
    """`spend(rows)` returns no sooner than a device of `rows_per_second` would have computed them.

    Used by one thread. Time that the device was idle is lost but for BURST_SECONDS of it, so the rate is never exceeded
    for long; a sleep that lasted too long is made up for by the next.
    """

    def __init__(
        self,
        rows_per_second: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        assert rows_per_second > 0
        self._seconds_per_row = 1.0 / rows_per_second
        self._clock, self._sleep = clock, sleep
        self._due = float("-inf")

    def spend(self, rows: int) -> None:
        now = self._clock()
        self._due = max(self._due, now - BURST_SECONDS) + rows * self._seconds_per_row
        if self._due > now:
            self._sleep(self._due - now)
