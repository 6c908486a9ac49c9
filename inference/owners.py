"""What the dispatcher has learnt about each owner: how long it takes, how long to wait, whether to leave it alone.

Pure state with the time handed in; the caller holds a lock.
"""

from collections.abc import Hashable
from dataclasses import dataclass

# RFC 6298's retransmission timer: smoothed time plus four mean deviations.
GAIN, DEVIATION_GAIN, DEVIATIONS = 1 / 8, 1 / 4, 4.0
SHORTEST_DEADLINE_SECONDS = 0.25  # a worker's garbage collection or a lost packet is no reason to do its work twice
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 30.0
# Bytes of one step, there and back. The measured rate is a lower bound: small answers are mostly latency. Larger steps
# raise it, so the cap opens like TCP's window: from the first bytes up to what the deadline allows.
FIRST_CAP_BYTES, LEAST_CAP_BYTES = 1 << 20, 64 << 10
RATE_DECAY = 0.99


@dataclass
class Owner:
    """Times in seconds of answers that arrived; `failures` counts those in a row that did not.

    bytes_per_second: the best of the recent answers, sent and received bytes together.
    """

    smoothed_seconds: float = 0.0
    deviation_seconds: float = 0.0
    answers: int = 0
    failures: int = 0
    paused_until: float = 0.0
    bytes_per_second: float = 0.0

    def answered(self, seconds: float, moved_bytes: int = 0) -> None:
        if self.answers == 0:
            self.smoothed_seconds, self.deviation_seconds = seconds, seconds / 2
        else:
            error = abs(seconds - self.smoothed_seconds)
            self.deviation_seconds += DEVIATION_GAIN * (error - self.deviation_seconds)
            self.smoothed_seconds += GAIN * (seconds - self.smoothed_seconds)
        self.bytes_per_second = max(moved_bytes / max(seconds, 1e-6), RATE_DECAY * self.bytes_per_second)
        self.answers += 1
        self.failures = 0

    def failed(self, now: float) -> None:
        """The owner is left alone for half a second, doubling with every failure in a row, at most 30 s."""
        pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(self.failures, 10))
        self.failures += 1
        self.paused_until = now + pause
        self.bytes_per_second /= 2

    def deadline_seconds(self, longest: float, shortest: float = SHORTEST_DEADLINE_SECONDS) -> float:
        """How long to wait for an answer; `longest` until there is a history."""
        if self.answers == 0:
            return longest
        return min(longest, max(shortest, self.smoothed_seconds + DEVIATIONS * self.deviation_seconds))

    def cap_bytes(self, longest: float, shortest: float = SHORTEST_DEADLINE_SECONDS) -> float:
        """Bytes that one step may move, there and back: the measured rate times the deadline."""
        return self.limits(longest, shortest)[1]

    def limits(self, longest: float, shortest: float = SHORTEST_DEADLINE_SECONDS) -> tuple[float, float]:
        """`deadline_seconds` and `cap_bytes`, which is asked for in every layer, at once."""
        if self.answers == 0:
            return longest, FIRST_CAP_BYTES
        seconds = self.deadline_seconds(longest, shortest)
        return seconds, max(LEAST_CAP_BYTES, self.bytes_per_second * seconds)

    def cost(self, now: float) -> float:
        """Expected seconds, infinite while the owner is left alone."""
        return float("inf") if now < self.paused_until else self.smoothed_seconds


class Owners:
    """One `Owner` per session; forgotten when its session leaves the table."""

    def __init__(self) -> None:
        self._owners: dict[Hashable, Owner] = {}

    def of(self, session: Hashable) -> Owner:
        found = self._owners.get(session)
        if found is None:
            found = self._owners[session] = Owner()
        return found

    def keep_only(self, sessions: set[Hashable]) -> None:
        for session in self._owners.keys() - sessions:
            del self._owners[session]

    def items(self) -> list[tuple[Hashable, Owner]]:
        return list(self._owners.items())
