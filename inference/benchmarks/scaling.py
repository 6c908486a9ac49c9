"""`manage.py bench scaling`: tokens per second grow with workers, as far as workers and backbone can go.

Every worker has a socket, a session and a row budget of its own: R rows per second, a phone's pace at a size that this
machine can emulate beside the backbone. Curve `remote-only`: no expert here, no deadline, one replica; W workers give
at most W x R / (layers x used experts) tokens per second. Curve `fallback`: the limits of a real backbone, which
computes here what is late. `free` workers have no budget: what backbone, relay and workers can do at most on these
cores.

Experts are placed by the demand of the very texts that are written, as a market that follows demand would in the end.
The model has random weights, 4 layers of 256 experts, top 8: the 122B's experts per layer at a width of 256.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from inference.benchmarks.progress import Progress
from inference.benchmarks.relay.processes import Client
from inference.benchmarks.report import Result
from inference.benchmarks.rig.backbone import Options
from inference.benchmarks.rig.placement import FloatArray, by_demand, imbalance
from inference.benchmarks.rig.rounds import Round, measure, summary
from inference.benchmarks.rig.site import SERVER_PROGRAM, Group, Site, backbone, site
from inference.gguf_index import ModelIndex, open_index
from inference.synthetic import SMALL, shape122b

GOAL = 0.9
LIMIT_WHAT = "the lesser of workers x R / (layers x used experts) and the rate with workers that have no budget"


@dataclass(frozen=True)
class Plan:
    """rows_per_second: of each worker. sequences: in flight per worker. calibration: tokens of each sequence whose
    demand decides the placement: about as many as are measured."""

    workers: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    rows_per_second: float = 300.0
    sequences: int = 32
    lanes: int = 24
    seconds: float = 8.0
    warm: float = 4.0
    calibration: int = 4


QUICK = Plan(workers=(1, 3), rows_per_second=200.0, sequences=4, lanes=2, seconds=0.8, warm=0.2, calibration=2)


def scaling(cache: Path, *, quick: bool, threads: int, progress: Progress) -> list[Result]:
    """Raises SideFailed."""
    plan = QUICK if quick else Plan()
    model = shape122b(cache / "rig-256-experts.gguf", 4, shape=replace(SMALL, experts=256, experts_used=8))
    index = open_index(model)
    remote_only = Options(str(model), "", plan.lanes, plan.sequences * max(plan.workers), threads)
    folder = cache / "rig-256"
    progress(0.0, "who is asked for what")
    placed = {
        workers: by_demand(demand, index.offered_layers, workers)
        for workers, demand in _demands(remote_only, folder, plan).items()
    }
    groups = {name_of(workers): Group(held, plan.rows_per_second) for workers, held in placed.items()}
    groups["free"] = Group(placed[max(plan.workers)])
    results: list[Result] = []
    with site(model, folder, groups) as here:
        for options in (remote_only, replace(remote_only, is_remote_only=False)):
            half = 0.0 if options.is_remote_only else 0.5
            with backbone(replace(options, relay=here.url), here) as child:
                curve = Curve(plan, index, here, child, groups, partial(_tell, progress, half))
                results += curve.remote_only() if options.is_remote_only else curve.fallback()
    return results


def _tell(progress: Progress, half: float, share: float, text: str) -> None:
    progress(half + share / 2, text)


def name_of(workers: int) -> str:
    return f"workers{workers}"


def _demands(options: Options, folder: Path, plan: Plan) -> dict[int, FloatArray]:
    """By number of workers: (layers, experts) rows that its texts ask for, every expert computed here."""
    demands = {}
    with site(Path(options.model), folder, {}) as here, backbone(replace(options, relay=here.url), here) as child:
        for workers in plan.workers:
            child.ask(prepare=plan.sequences * workers)
            before = np.array(child.ask(demand=1)["demand"], np.float64)
            child.ask(round=plan.calibration)
            demands[workers] = np.array(child.ask(demand=1)["demand"], np.float64) - before
    return demands


@dataclass
class Curve:
    """The measurements of one backbone."""

    plan: Plan
    index: ModelIndex
    here: Site
    child: Client
    groups: dict[str, Group]
    progress: Progress

    def remote_only(self) -> Iterator[Result]:
        most = max(self.plan.workers)
        free, _ = self._measure("free", most)
        own = free.per_second
        yield Result(f"free/workers{most}", "tokens/s", [own], extra={**self._facts(free), "note": _bottleneck(free)})
        for workers in self.plan.workers:
            one, demand = self._measure(name_of(workers), workers)
            limit = min(self._by_budget(workers), own)
            yield Result(
                f"remote-only/workers{workers}",
                "tokens/s",
                [one.per_second],
                peer=LIMIT_WHAT,
                peer_samples=[limit],
                limit=limit,
                limit_what=LIMIT_WHAT,
                goal=GOAL,
                extra={**self._facts(one), "imbalance": imbalance(demand, self.groups[name_of(workers)].held)},
            )

    def fallback(self) -> Iterator[Result]:
        for workers in self.plan.workers:
            one, _ = self._measure(name_of(workers), workers)
            extra = {**self._facts(one), "workers_alone": self._by_budget(workers)}
            note = f"{one.remote_share:.0%} of the rows by workers, {one.busy:.0%} of all cores busy"
            yield Result(f"fallback/workers{workers}", "tokens/s", [one.per_second], extra={**extra, "note": note})

    def _by_budget(self, workers: int) -> float:
        rows = len(self.index.offered_layers) * self.index.experts_used
        return workers * self.plan.rows_per_second / rows

    def _measure(self, group: str, workers: int) -> tuple[Round, FloatArray]:
        """The round, and the demand of all that was written in it and in its warm-up."""
        self.progress(workers / sum(self.plan.workers), f"{group} ({workers})")
        self.child.ask(prepare=self.plan.sequences * workers)
        self.child.ask(use=group, workers=workers)
        before = self._asked()
        one = measure(self.here, self.child, window=self.plan.seconds, warm=self.plan.warm)
        return one, self._asked() - before

    def _asked(self) -> FloatArray:
        return np.array(self.child.ask(demand=1)["demand"], np.float64)

    def _facts(self, one: Round) -> dict[str, Any]:
        return {
            "rows_per_second": self.plan.rows_per_second,
            "lanes": self.plan.lanes,
            "sequences_per_worker": self.plan.sequences,
            "relay": SERVER_PROGRAM,
            **summary([one]),
        }


def _bottleneck(free: Round) -> str:
    """Names what the backbone's own limit is made of."""
    shares: Sequence[tuple[str, float]] = sorted(free.cpu_share.items(), key=lambda item: -item[1])
    parts = ", ".join(f"{kind} {share:.0%}" for kind, share in shares if share >= 0.01)
    return f"the backbone's own limit here; of all cores: {parts}"
