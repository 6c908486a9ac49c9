"""How long a client waits before it dials again: at random within a window that doubles with every failure.

All clients of a relay that dies lose it in the same moment. Were they all to wait about as long, the next relay would
meet all of them at once, each with a look-up in the database; spread over a window they come one by one. Backbones are
few and everybody waits for them, so their window is short.
Source: "full jitter", Marc Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
"""

import random
from collections.abc import Callable

from relay.frames import Role

FIRST_SECONDS = {Role.BACKBONE: 0.5, Role.STAGE: 0.5, Role.WORKER: 2.0}
LONGEST_SECONDS = 30.0
LEAST_SECONDS = 0.05


class Backoff:
    """`next_seconds` per attempt that failed, `reset` after a connection that was good. draw: uniform in [0, 1)."""

    def __init__(self, role: Role, draw: Callable[[], float] = random.random) -> None:
        self._first = FIRST_SECONDS[role]
        self._draw = draw
        self._failures = 0

    def reset(self) -> None:
        self._failures = 0

    def next_seconds(self) -> float:
        window = min(LONGEST_SECONDS, self._first * 2.0**self._failures)
        self._failures = min(self._failures + 1, 16)
        delay: float = LEAST_SECONDS + self._draw() * (window - LEAST_SECONDS)
        return delay
