"""What the arms `swarm` and `churn` are told to measure, and how much time they have for it."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from inference.benchmarks.rig.backbone import Options

RESULTS = {"exact": "F32", "compact": "PARTIAL_F16"}


@dataclass(frozen=True)
class Case:
    """One measurement: results is a key of RESULTS; remote only, unless there is a hot set or `falls_back`: then with
    the deadlines and the fallback of a real backbone."""

    sequences: int
    round_trip_ms: int = 0
    results: str = "exact"
    hot_bytes: int = 0
    falls_back: bool = False

    @property
    def is_remote_only(self) -> bool:
        return not self.hot_bytes and not self.falls_back

    @property
    def placing(self) -> str:
        """What a backbone process must be started with."""
        without = "fallback" if self.falls_back else "remote-only"
        return f"{self.results}/hot={self.hot_bytes / 1e9:g}GB" if self.hot_bytes else f"{self.results}/{without}"

    @property
    def name(self) -> str:
        return f"{self.placing}/rtt={self.round_trip_ms}/seq={self.sequences}"


@dataclass(frozen=True)
class Plan:
    """workers: numbers of processes of one thread, one after another; threads: of the backbone, over its lanes;
    steps: most tokens of every sequence in a round, seconds: about how long a round takes where that is fewer; trace:
    folder, empty: none. Only exact results are traced: no others can be repeated."""

    model: Path
    folder: Path
    workers: tuple[int, ...]
    cases: tuple[Case, ...]
    steps: int
    seconds: float
    rounds: int
    lanes: int
    threads: int
    gpu_layers: int = 0
    trace: str = ""

    @property
    def round_trips(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(case.round_trip_ms for case in self.cases))

    @property
    def sequences(self) -> tuple[int, ...]:
        return tuple(sorted({case.sequences for case in self.cases}))

    def options(self, arm: str, workers: int, case: Case, url: str) -> Options:
        is_traced = bool(self.trace) and case.results == "exact"
        trace = f"{self.trace}/{arm}-w{workers}-{case.placing.replace('/', '-')}" if is_traced else ""
        return Options(
            str(self.model), url, self.lanes, max(self.sequences), self.threads,
            is_remote_only=case.is_remote_only, result_dtype=RESULTS[case.results], gpu_layers=self.gpu_layers,
            hot_bytes=case.hot_bytes, trace=trace,
        )  # fmt: skip

    def by_backbone(self, workers: int, url: str) -> Iterator[tuple[Options, list[Case]]]:
        """Cases that one backbone process can serve one after another."""
        served: dict[Options, list[Case]] = {}
        for case in self.cases:
            served.setdefault(self.options("swarm", workers, case, url), []).append(case)
        yield from served.items()


@dataclass
class Budget:
    """Seconds that an arm may take, None: as long as it likes. A machine may be lent for minutes, so a case that would
    hardly end in time is not begun; its name is kept in `left_out`."""

    seconds: float | None = None
    left_out: list[str] = field(default_factory=list)
    _began: float = field(default_factory=time.monotonic)
    _longest: float = 0.0

    def allows(self, case: str, expected: float = 0.0) -> bool:
        """Whether as much time is left as the longest case took so far, and at least `expected` seconds."""
        left = float("inf") if self.seconds is None else self.seconds - (time.monotonic() - self._began)
        if left >= max(expected, self._longest):
            return True
        self.left_out.append(case)
        return False

    def took(self, seconds: float) -> None:
        self._longest = max(self._longest, seconds)
