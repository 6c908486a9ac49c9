"""The people of the simulation: what their devices hold, how fast they download, how long they stay. Seeded."""

import math
from dataclasses import dataclass, field

import numpy as np

LEAST_BYTES, MOST_BYTES = 42_000_000, 340_000_000
MEDIAN_STAY_SECONDS = 20 * 60.0
SLOWEST_BYTES_PER_SECOND, FASTEST_BYTES_PER_SECOND = 1_000_000.0, 10_000_000.0
# Half of the leavers give their claims back. The others' leases run out: of most the relay sees the connection close
# (a page or a program that ended), of one in ten leavers nothing is heard any more (no network, no battery).
RELEASING_SHARE, SILENT_SHARE = 0.5, 0.1
DECIDES_SECONDS = (1.0, 5.0)
CHALLENGE_SECONDS = (1.0, 4.0)
POLL_SECONDS = (30.0, 60.0)
PING_SECONDS = 10.0


@dataclass(slots=True)
class Device:
    """One stay of one device. Times are seconds since the start of the simulation.

    leaves: "releasing" its claims, "closing" its connection, or "silent". last_seen: of a device that left, at most a
    ping before it did. downloading_until: when its link is free again.
    """

    node_id: str
    capacity_bytes: int
    bytes_per_second: float
    leaves_at: float
    leaves: str
    last_seen: float = math.inf
    free_bytes: int = 0
    downloading_until: float = 0.0
    claims: list[int] = field(default_factory=list)
    credited_until: float = 0.0
    gone: bool = False


class Crowd:
    """Draws devices, one after another, from one seeded stream."""

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random
        self.count = 0

    def arrive(self, now: float) -> Device:
        self.count += 1
        capacity = int(self._random.integers(LEAST_BYTES, MOST_BYTES + 1))
        stay = float(self._random.exponential(MEDIAN_STAY_SECONDS / math.log(2)))
        speed = math.exp(
            float(self._random.uniform(math.log(SLOWEST_BYTES_PER_SECOND), math.log(FASTEST_BYTES_PER_SECOND)))
        )
        return Device(
            node_id=f"{self.count:016x}",
            capacity_bytes=capacity,
            bytes_per_second=speed,
            leaves_at=now + stay,
            leaves=self._way_out(),
            free_bytes=capacity,
            credited_until=now,
        )

    def _way_out(self) -> str:
        drawn = float(self._random.random())
        if drawn < RELEASING_SHARE:
            return "releasing"
        return "silent" if drawn > 1 - SILENT_SHARE else "closing"

    def between(self, limits: tuple[float, float]) -> float:
        return float(self._random.uniform(*limits))
