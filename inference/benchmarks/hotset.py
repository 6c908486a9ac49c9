"""`manage.py bench hotset`: what the hot set keeps of the rows, and what that is worth.

Planner: traces of router activations, one reading every five seconds as in a backbone: Zipf-like ones whose favourites
change now and then, and one that was measured while the demo model wrote. After each reading the set is planned anew
(an eighth of all experts) and judged by the next one. The peer knows the whole trace and keeps one set for all of it.
Backbone: the rig behind lines of 20 ms, with and without a hot set of a quarter of the experts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from inference.benchmarks.progress import Progress
from inference.benchmarks.relay.processes import Client
from inference.benchmarks.report import Result
from inference.benchmarks.rig.backbone import Options
from inference.benchmarks.rig.placement import even
from inference.benchmarks.rig.rounds import measure, summary
from inference.benchmarks.rig.site import Group, backbone, site
from inference.gguf_index import ModelIndex, open_index
from inference.hot_set import HotBudget, plan_hot_set
from inference.hot_set_keeper import PLAN_SECONDS
from inference.hot_set_meter import LayerCounts, LoadMeter
from inference.synthetic import DEMO_MODEL

GROUP, WORKERS, ROUND_TRIP = "workers", 2, 0.02
PEER = "the best constant set in hindsight"
PLANNER_SHARE, BACKBONE_SHARE = 1 / 8, 1 / 4
GOAL = 0.9
EXPERT_BYTES = 1 << 20
CALLS = 100  # of each layer between two readings

Trace = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Plan:
    """steps: decodes of the measured trace, a reading each; readings: of the Zipf-like ones; window, warm: seconds."""

    steps: int = 96
    readings: int = 240
    sequences: int = 16
    window: float = 8.0
    warm: float = 14.0


QUICK = Plan(steps=12, readings=24, sequences=4, window=0.6, warm=0.4)


def hotset(cache: Path, *, quick: bool, threads: int, progress: Progress) -> list[Result]:
    """Raises SideFailed."""
    plan = QUICK if quick else Plan()
    index = open_index(DEMO_MODEL)
    held = even(index.offered_layers, index.experts_per_layer, WORKERS)
    groups = {GROUP: Group(held, round_trip=ROUND_TRIP, processes=WORKERS)}
    results = [
        judge(f"planner/zipf{exponent:g}/change every {every}", zipf_trace(plan.readings, exponent, every))
        for exponent in (0.7, 1.1)
        for every in (plan.readings, plan.readings // 4)
    ]
    with site(DEMO_MODEL, cache / "rig", groups) as here:
        bytes_limit = int(index.routed_bytes * BACKBONE_SHARE)
        cold = Options(str(DEMO_MODEL), here.url, 2, plan.sequences, threads)
        progress(0.2, "measured trace")
        with backbone(cold, here) as child:
            results.append(judge("planner/measured", measured_trace(child, plan)))
        rates: dict[str, float] = {}
        for name, options in (("cold", cold), ("hot", replace(cold, hot_bytes=bytes_limit))):
            progress(0.4 if name == "cold" else 0.7, f"backbone, {name}")
            with backbone(options, here) as child:
                child.ask(prepare=plan.sequences)
                child.ask(use=GROUP, workers=WORKERS)
                before = _demand(child)
                one = measure(here, child, window=plan.window, warm=plan.warm)
                demand = _demand(child) - before
            tokens = one.tokens
            rates[name] = one.per_second
            static = 1.0 - best_constant_share(demand[None], BACKBONE_SHARE)
            rows = len(index.offered_layers) * index.experts_used
            dispatched = one.rows.get("remote", 0) / tokens
            extra = {**summary([one]), "rows": one.rows, "rows_per_token": rows, "sequences": plan.sequences}
            yielded = _backbone_results(name, one.per_second, dispatched, static * rows, rates, extra, plan, index)
            results += yielded
    return results


def _backbone_results(
    name: str,
    rate: float,
    dispatched: float,
    static: float,
    rates: dict[str, float],
    extra: dict[str, object],
    plan: Plan,
    index: ModelIndex,
) -> Iterator[Result]:
    bound = plan.sequences / (len(index.offered_layers) * ROUND_TRIP)
    peer = {"peer": "without a hot set", "peer_samples": [rates["cold"]]} if name == "hot" else {}
    yield Result(
        f"backbone/{name}/rate",
        "tokens/s",
        [rate],
        limit=bound,
        limit_what="sequences / (layers x round trip), unless a whole layer stays here",
        extra=extra,
        **peer,  # type: ignore[arg-type]
    )
    yield Result(
        f"backbone/{name}/dispatched rows",
        "rows per token",
        [dispatched],
        limit=static if name == "hot" else None,
        limit_what=f"{PEER}, of the same bytes" if name == "hot" else None,
        extra={"rows_per_token": extra["rows_per_token"]},
    )


# --- traces -----------------------------------------------------------------------------------------------------------
def zipf_trace(readings: int, exponent: float, change_every: int, *, layers: int = 4, experts: int = 64) -> Trace:
    """(readings, layers, experts) rows: popularity falls with the rank's power; at a change a quarter of the experts
    trade their ranks."""
    random = np.random.default_rng(5)
    share = 1.0 / np.arange(1, experts + 1) ** exponent
    share /= share.sum()
    ranks = np.stack([random.permutation(experts) for _ in range(layers)])
    trace = np.empty((readings, layers, experts), np.uint64)
    for reading in range(readings):
        if reading and reading % change_every == 0:
            for layer in range(layers):
                moved = random.choice(experts, experts // 4, replace=False)
                ranks[layer, moved] = ranks[layer, random.permutation(moved)]
        for layer in range(layers):
            trace[reading, layer] = random.multinomial(16 * CALLS, share[ranks[layer]])
    return trace


def measured_trace(child: Client, plan: Plan) -> Trace:
    """One reading per decode while the model writes, every expert computed here."""
    child.ask(prepare=plan.sequences)
    seen = [_demand(child)]
    for _ in range(plan.steps):
        child.ask(round=1)
        seen.append(_demand(child))
    every = np.stack(seen)
    return every[1:] - every[:-1]


def _demand(child: Client) -> npt.NDArray[np.uint64]:
    return np.array(child.ask(demand=1)["demand"], np.uint64)


# --- judging ----------------------------------------------------------------------------------------------------------
def judge(case: str, trace: Trace) -> Result:
    """The share of rows that the planner's sets keep, reading by reading, against the best constant set."""
    layers, experts = trace.shape[1:]
    sizes = np.full(layers, EXPERT_BYTES, np.int64)
    budget = HotBudget(int(layers * experts * PLANNER_SHARE) * EXPERT_BYTES, seconds=1e9)
    meter, counts = LoadMeter(sizes, experts), LayerCounts((layers, experts))
    flags = np.zeros((layers, experts), bool)
    covered = np.ones((layers, experts), bool)
    kept, changes = 0, 0
    for reading in trace:
        kept += int(reading[flags].sum())
        counts = counts.copy()
        counts.rows += reading
        counts.calls += CALLS
        plan = plan_hot_set(meter.read(counts, PLAN_SECONDS), covered, sizes, flags, budget)
        changes += int((plan.flags ^ flags).sum())
        flags = plan.flags
    share = kept / int(trace.sum())
    return Result(
        case,
        "share of rows kept",
        [share],
        peer=PEER,
        peer_samples=[best_constant_share(trace, PLANNER_SHARE)],
        goal=GOAL,
        extra={"readings": len(trace), "changes": changes, "experts_share": PLANNER_SHARE},
    )


def best_constant_share(trace: Trace, experts_share: float) -> float:
    """Share of all rows that the most used experts of the whole trace make, so many as the share allows."""
    total = np.sort(trace.sum(axis=0).ravel())[::-1].astype(np.float64)
    return float(total[: int(total.size * experts_share)].sum() / total.sum())
