"""What layer calls cost and ask for: measured by every call, read by the planner of the hot set as fading means.

Knows layers, rows and seconds; nothing of memory, workers or plans.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

# A conversation's topics change within minutes; a plan that follows each single step would never be at rest.
TIME_CONSTANT_SECONDS = 60.0
# Before anything was computed here: the weights of one expert are read once, at a cautious speed for one core.
PRIOR_BYTES_PER_SECOND = 4e9
# A layer that sends nothing away measures no wait: its last one is believed a little less with every reading, so that
# a few experts leave again and measure a network that may have become faster.
UNSEEN_WAIT_FACTOR = 0.98


@dataclass(frozen=True)
class StepTimes:
    """One layer call: seconds until the last answer came (0 when nothing was sent), and what was computed here while
    waiting. What else the call's time went into: dispatch (grouping, encoding, sending), idle (waiting with nothing to
    compute), combine (answers into the output), fallback (computing what workers did not)."""

    wait_seconds: float = 0.0
    local_seconds: float = 0.0
    local_rows: int = 0
    dispatch_seconds: float = 0.0
    idle_seconds: float = 0.0
    combine_seconds: float = 0.0
    fallback_seconds: float = 0.0


@dataclass(frozen=True)
class LayerLoads:
    """rows_per_call (layers, experts): activations of one call; the others (layers,): calls per second, seconds until
    the last answer, seconds of one row computed here."""

    rows_per_call: FloatArray
    calls_per_second: FloatArray
    wait_seconds: FloatArray
    seconds_per_row: FloatArray


class LayerCounts:
    """Running sums since the start, written under the caller's lock.

    rows (layers, experts) uint64: activations of the calls that may go to workers; calls, waits, local_rows (layers,)
    int64; wait_seconds, local_seconds and the other seconds of `StepTimes` (layers,) float64.
    """

    def __init__(self, shape: tuple[int, int]) -> None:
        layers = shape[0]
        self.rows = np.zeros(shape, np.uint64)
        self.calls, self.waits, self.local_rows = (np.zeros(layers, np.int64) for _ in range(3))
        self.wait_seconds, self.local_seconds = np.zeros(layers), np.zeros(layers)
        self.dispatch_seconds, self.idle_seconds = np.zeros(layers), np.zeros(layers)
        self.combine_seconds, self.fallback_seconds = np.zeros(layers), np.zeros(layers)

    def add(self, layer: int, rows: npt.NDArray[np.uint64], times: StepTimes) -> None:
        """rows (experts,): activations of the call."""
        self.rows[layer] += rows
        self.calls[layer] += 1
        if times.wait_seconds > 0:
            self.waits[layer] += 1
            self.wait_seconds[layer] += times.wait_seconds
        self.local_rows[layer] += times.local_rows
        self.local_seconds[layer] += times.local_seconds
        self.dispatch_seconds[layer] += times.dispatch_seconds
        self.idle_seconds[layer] += times.idle_seconds
        self.combine_seconds[layer] += times.combine_seconds
        self.fallback_seconds[layer] += times.fallback_seconds

    def copy(self) -> "LayerCounts":
        found = LayerCounts((self.rows.shape[0], self.rows.shape[1]))
        for name, values in vars(self).items():
            getattr(found, name)[...] = values
        return found


class LoadMeter:
    """Fading means over `LayerCounts` read now and then. expert_bytes (layers,): for the prior of a row's time."""

    def __init__(self, expert_bytes: npt.NDArray[np.int64], experts: int) -> None:
        layers = len(expert_bytes)
        self._last = LayerCounts((layers, experts))
        self._sums = {name: np.zeros_like(values, np.float64) for name, values in vars(self._last).items()}
        self._seconds = 0.0
        self._trust = np.ones(layers)
        self._prior = expert_bytes / PRIOR_BYTES_PER_SECOND

    def read(self, counts: LayerCounts, seconds: float) -> LayerLoads:
        """counts: the running sums now; seconds: since the last reading."""
        fade = math.exp(-seconds / TIME_CONSTANT_SECONDS)
        for name, total in self._sums.items():
            now, before = getattr(counts, name), getattr(self._last, name)
            total *= fade
            total += now - before
        self._seconds = self._seconds * fade + seconds
        new_calls, new_waits = counts.calls - self._last.calls, counts.waits - self._last.waits
        self._trust = np.where(
            new_waits > 0, 1.0, np.where(new_calls > 0, self._trust * UNSEEN_WAIT_FACTOR, self._trust)
        )
        self._last = counts
        return self._loads()

    def _loads(self) -> LayerLoads:
        sums = self._sums
        return LayerLoads(
            rows_per_call=sums["rows"] / np.maximum(sums["calls"], 1e-9)[:, None],
            calls_per_second=sums["calls"] / max(self._seconds, 1e-9),
            wait_seconds=self._trust * sums["wait_seconds"] / np.maximum(sums["waits"], 1e-9),
            seconds_per_row=self._seconds_per_row(sums["local_seconds"], sums["local_rows"]),
        )

    def _seconds_per_row(self, seconds: FloatArray, rows: FloatArray) -> FloatArray:
        """Of each layer as measured; layers that computed nothing take the mean of the others, in relation to their
        size, and without any the prior."""
        measured = rows > 0.5
        if not measured.any():
            return self._prior
        scale = float(seconds[measured].sum() / (rows * self._prior)[measured].sum())
        return np.where(measured, seconds / np.maximum(rows, 1e-9), self._prior * scale)
