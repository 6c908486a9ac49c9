"""Arm `swarm`: a real relay, W worker processes of one thread each, one backbone; bodies over sockets."""

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from inference.benchmarks.full_size import limits, parts
from inference.benchmarks.full_size.breakdown import memory, spent, told
from inference.benchmarks.full_size.plan import Budget, Case, Plan
from inference.benchmarks.progress import Progress
from inference.benchmarks.relay.processes import Client
from inference.benchmarks.report import Result
from inference.benchmarks.rig.backbone import Options
from inference.benchmarks.rig.placement import even
from inference.benchmarks.rig.site import Group, Site, backbone, site
from inference.gguf_index import ModelIndex, open_index
from inference.verify.local_swarm import Range

# A hot set is planned every few seconds, from what was asked for until then.
HOT_SET_SECONDS = 6.0


def group_of(round_trip_ms: int) -> str:
    return f"rtt{round_trip_ms}"


@dataclass
class Swarm:
    """A relay with its workers, and how long they took to start."""

    workers: int
    held: Sequence[tuple[Range, ...]]
    here: Site
    start_seconds: float


@contextmanager
def swarm_of(plan: Plan, index: ModelIndex, workers: int, round_trips: Sequence[int]) -> Iterator[Swarm]:
    """All routed experts of the trunk, cut evenly over W processes. Raises SideFailed."""
    held = even(index.offered_layers, index.experts_per_layer, workers)
    groups = {group_of(ms): Group(held, round_trip=ms / 1000 if ms else None, processes=workers) for ms in round_trips}
    began = time.perf_counter()
    with site(plan.model, plan.folder, groups) as here:
        yield Swarm(workers, held, here, time.perf_counter() - began)


def swarm(plan: Plan, progress: Progress, budget: Budget) -> Iterator[Result]:
    """Cases `swarm/W=N/...` and `start/W=N`, as they are measured. Raises SideFailed."""
    index = open_index(plan.model)
    layers = len(index.offered_layers)
    progress(0.0, "parts of a layer, in plain llama.cpp")
    alone = parts.measure(
        plan.model, plan.sequences, layers=layers, threads=plan.threads, gpu_layers=plan.gpu_layers
    )  # fmt: skip
    for number, workers in enumerate(plan.workers):
        if not budget.allows(f"swarm/W={workers}"):
            continue
        progress(number / len(plan.workers), f"W={workers}")
        with swarm_of(plan, index, workers, plan.round_trips) as one:
            for options, cases in plan.by_backbone(workers, one.here.url):
                yield from _served(Measurement(plan, index, one, alone), options, cases, budget)


def _served(measurement: "Measurement", options: Options, cases: list[Case], budget: Budget) -> Iterator[Result]:
    """All cases of one backbone process."""
    one = measurement.swarm
    with ExitStack() as stack:
        child: Client | None = None
        for case in cases:
            began = time.perf_counter()
            if not budget.allows(f"swarm/W={one.workers}/{case.name}", measurement.least_seconds(case)):
                continue
            if child is None:
                child = stack.enter_context(backbone(options, one.here))
                loaded = time.perf_counter()
                child.ask(use=group_of(case.round_trip_ms), workers=one.workers)
                yield measurement.start(options, loaded - began, time.perf_counter() - loaded)
            yield measurement.measure(case, child)
            budget.took(time.perf_counter() - began)


@dataclass
class Measurement:
    """Rounds of one placement of experts. alone: by number of sequences."""

    plan: Plan
    index: ModelIndex
    swarm: Swarm
    alone: dict[int, parts.Parts]

    def least_seconds(self, case: Case) -> float:
        """Round trips alone: warm-up and one step a round."""
        return (1 + self.plan.rounds) * len(self.index.offered_layers) * case.round_trip_ms / 1000

    def start(self, options: Options, load_seconds: float, join_seconds: float) -> Result:
        """Seconds until the relay runs and every worker has opened its experts; and until a backbone uses them."""
        extra = {
            "load_seconds": round(load_seconds, 2),
            "join_seconds": round(join_seconds, 2),
            "ranges": sum(len(runs) for runs in self.swarm.held),
            "note": f"then the backbone loads in {load_seconds:.1f} s, and has everybody after {join_seconds:.1f} s",
        }
        mode = f"{options.result_dtype}/hot={options.hot_bytes / 1e9:g}GB"
        return Result(f"start/W={self.swarm.workers}/{mode}", "s", [self.swarm.start_seconds], extra=extra)

    def measure(self, case: Case, child: Client) -> Result:
        plan, one, here = self.plan, self.swarm, self.swarm.here
        child.ask(prepare=case.sequences)
        child.ask(use=group_of(case.round_trip_ms), workers=one.workers)
        # Credit, connections and graphs settle; a hot set needs to have seen what is asked for.
        warm = child.ask(round=1)
        until = time.perf_counter() + (HOT_SET_SECONDS if case.hot_bytes else 0.0)
        while time.perf_counter() < until:
            warm = child.ask(round=1)
        steps = max(1, min(plan.steps, int(plan.seconds / warm["seconds"])))
        answers, shares = [], []
        for _ in range(plan.rounds):
            before, began = here.cpu_seconds(), time.perf_counter()
            answers.append(child.ask(round=steps))
            took = time.perf_counter() - began
            after = here.cpu_seconds()
            shares.append({kind: (after[kind] - before[kind]) / took for kind in after})
        return self._result(case, answers, shares)

    def _result(self, case: Case, answers: list[dict[str, Any]], shares: list[dict[str, float]]) -> Result:
        plan, workers, layers = self.plan, self.swarm.workers, len(self.index.offered_layers)
        samples = [answer["tokens"] / answer["seconds"] for answer in answers]
        limit, what = limits.swarm_limit(
            self.index, self.swarm.held[0][0], workers, case.sequences, case.round_trip_ms
        )  # fmt: skip
        of_limit = statistics.median(samples) / limit
        found = spent(answers, layers, plan.lanes, self.alone[case.sequences])
        return Result(
            f"swarm/W={workers}/{case.name}",
            "tokens/s",
            samples,
            limit=limit,
            limit_what=what,
            extra={
                "of_limit": round(of_limit, 3),
                "layers": layers,
                "lanes": plan.lanes,
                "gpu_layers": plan.gpu_layers,
                "cores_busy": {kind: round(statistics.mean(one[kind] for one in shares), 2) for kind in shares[0]},
                **found,
                "memory_bytes": memory(self.swarm.here),
                "failures": failures(answers),
                "note": told(found, of_limit),
            },
        )


def failures(answers: Sequence[dict[str, Any]]) -> dict[str, int]:
    """By code, over several rounds."""
    found: dict[str, int] = {}
    for answer in answers:
        for code, count in answer["failures"].items():
            found[code] = found.get(code, 0) + count
    return found
