"""One measured round of the rig's backbone, with the bill of processor time."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from inference.benchmarks.relay.processes import Client
from inference.benchmarks.rig.site import Site, cores


@dataclass(frozen=True)
class Round:
    """cpu_share: of all cores, by kind of process; rows: (token, expert) pairs of a layer by place of computing."""

    tokens: float
    seconds: float
    cpu_share: dict[str, float]
    rows: dict[str, int]
    failures: dict[str, int] = field(default_factory=dict)

    @property
    def per_second(self) -> float:
        return self.tokens / self.seconds

    @property
    def remote_share(self) -> float:
        return self.rows.get("remote", 0) / max(1, sum(self.rows.values()))

    @property
    def busy(self) -> float:
        """Share of all cores that all processes of the rig used."""
        return sum(self.cpu_share.values())


def measure(here: Site, backbone: Client, **order: float) -> Round:
    """One round of so many `steps`, or a `window` of seconds after `warm` seconds. Raises SideFailed."""
    before, began = here.cpu_seconds(), perf_counter()
    answer: dict[str, Any] = backbone.ask(**order)
    after, took = here.cpu_seconds(), perf_counter() - began
    # Processor time is that of the whole order, in hundredths of a second; so is the time that it is divided by.
    share = {kind: (after[kind] - before[kind]) / took / cores() for kind in after}
    return Round(answer["tokens"], answer["seconds"], share, answer["places"], answer["failures"])


def summary(rounds: Sequence[Round]) -> dict[str, Any]:
    """What a result tells beside its rate: means over the rounds."""
    count = len(rounds)
    failures: dict[str, int] = {}
    for one in rounds:
        for code, number in one.failures.items():
            failures[code] = failures.get(code, 0) + number
    return {
        "remote_share": round(sum(one.remote_share for one in rounds) / count, 4),
        "cpu_share": {
            kind: round(sum(one.cpu_share[kind] for one in rounds) / count, 3) for kind in rounds[0].cpu_share
        },
        "busy_share": round(sum(one.busy for one in rounds) / count, 3),
        "failures": failures,
    }
