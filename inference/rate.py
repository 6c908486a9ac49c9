"""A rate that forgets: events per second, averaged over about the last ten seconds."""

import math
import threading


class RateMeter:
    """Exponentially weighted events per second. Times are seconds of one monotonic clock, given by the caller."""

    def __init__(self, window_seconds: float = 10.0) -> None:
        self._window = window_seconds
        self._weight = 0.0
        self._first: float | None = None
        self._last = 0.0
        self._lock = threading.Lock()

    def add(self, count: int, now: float) -> None:
        with self._lock:
            if self._first is None:
                self._first = self._last = now
            self._weight = self._weight * self._decay(now) + count
            self._last = max(self._last, now)

    def per_second(self, now: float) -> float:
        """The rate at `now`; in the first window, over the time since the first event."""
        with self._lock:
            if self._first is None or now <= self._first:
                return 0.0
            # Without the division the rate would start near zero and creep up for a whole window.
            seen = 1.0 - math.exp(-(now - self._first) / self._window)
            return self._weight * self._decay(now) / (self._window * seen)

    def _decay(self, now: float) -> float:
        return math.exp(-max(0.0, now - self._last) / self._window)
