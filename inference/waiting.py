"""Answers to one layer's requests on their way from the transport's thread to the lane's."""

import threading
import time
from collections import deque
from typing import NamedTuple

from relay.work import Outcome


class Arrival(NamedTuple):
    """The answer to one flight; at: monotonic seconds."""

    flight: int
    outcome: Outcome
    at: float


class Waiting:
    """One per layer call: late answers reach an object that nobody reads any more."""

    def __init__(self) -> None:
        self._arrivals: deque[Arrival] = deque()
        self._condition = threading.Condition()
        self.is_aborted = False

    def arrive(self, flight: int, outcome: Outcome) -> None:
        with self._condition:
            self._arrivals.append(Arrival(flight, outcome, time.monotonic()))
            self._condition.notify()

    def abort(self) -> None:
        """Nobody needs the remote answers any more: `next` returns None at once, for good."""
        with self._condition:
            self.is_aborted = True
            self._condition.notify()

    def next(self, until: float) -> Arrival | None:
        """The next answer; None when `until` (monotonic seconds) passed without one, or after `abort`."""
        with self._condition:
            while not self._arrivals and not self.is_aborted:
                remaining = until - time.monotonic()
                if remaining <= 0 or not self._condition.wait(remaining):
                    break
            return self._arrivals.popleft() if self._arrivals and not self.is_aborted else None
