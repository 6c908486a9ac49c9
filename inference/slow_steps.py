"""The slow-step log: which layer waited how long, on whom, and what came of it.

A layer of a step ends when the last of its workers has answered or was given up; the one that ended it is the one that
everybody waited for. Every wait is counted; a line is written once a second at most, with the number of those between.
"""

import logging
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

logger = logging.getLogger(__name__)

LINE_SECONDS = 1.0
MOST_NAMED = 8
ANSWERED = "answered"


class Wait(NamedTuple):
    """One request of a step. seconds: from sending to its end; outcome: `answered`, `late`, or the failure's code."""

    node_id: str
    rows: int
    seconds: float
    outcome: str


class SlowSteps:
    """`limit_seconds`: a layer that waited longer is slow. Lanes call from their own threads."""

    def __init__(self, limit_seconds: float) -> None:
        self._limit = limit_seconds
        self._lock = threading.Lock()
        self._said_at = float("-inf")
        self._unsaid = 0

    def look(self, layer: int, tokens: int, waited_seconds: float, waits: Sequence[Wait]) -> bool:
        """Whether the layer was slow; then it is told, or counted for the next line."""
        if waited_seconds <= self._limit or not waits:
            return False
        now = time.monotonic()
        with self._lock:
            if now - self._said_at < LINE_SECONDS:
                self._unsaid += 1
                return True
            self._said_at, unsaid, self._unsaid = now, self._unsaid, 0
        slowest = sorted(waits, key=lambda wait: -wait.seconds)[:MOST_NAMED]
        last = slowest[0]
        logger.warning(
            "layer %d waited %.2f s for node %s (%s, %d rows); %d other slow layers since the last line",
            layer, waited_seconds, last.node_id, last.outcome, last.rows, unsaid,
            extra={
                "layer": layer,
                "tokens": tokens,
                "waited_seconds": round(waited_seconds, 3),
                "waited_for": [{**wait._asdict(), "seconds": round(wait.seconds, 3)} for wait in slowest],
            },
        )  # fmt: skip
        return True
