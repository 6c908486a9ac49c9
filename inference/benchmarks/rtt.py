"""`manage.py bench rtt`: what round trips cost, and what sequences in flight and lanes hide of them.

Two worker processes hold half of the experts each, behind slow lines of 0, 20, 100 and 250 ms; no row is computed by
the backbone. A token passes every layer, and a layer is one round trip: S sequences in flight can give at most
S / (layers x round trip) tokens per second, however many lanes they are spread over, and never more than the same
sequences on the same lanes give without a delay. `ratio` is the measured rate against the lesser of the two.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from inference.benchmarks.progress import Progress
from inference.benchmarks.relay.processes import Client
from inference.benchmarks.report import Result
from inference.benchmarks.rig.backbone import Options
from inference.benchmarks.rig.placement import even
from inference.benchmarks.rig.rounds import Round, measure, summary
from inference.benchmarks.rig.site import SERVER_PROGRAM, Group, Site, backbone, site
from inference.gguf_index import open_index
from inference.synthetic import DEMO_MODEL

WORKERS = 2
GOAL_MILLISECONDS, GOAL = 100, 0.85
LIMIT_WHAT = "the lesser of sequences / (layers x round trip) and the rate without delay"


@dataclass(frozen=True)
class Plan:
    """steps: tokens of every sequence in one round, by milliseconds of the round trip; the first one must be 0."""

    steps: dict[int, int]
    sequences: tuple[int, ...] = (1, 8, 64)
    lanes: tuple[int, ...] = (1, 2, 4)
    repetitions: int = 2


FULL = Plan({0: 30, 20: 10, 100: 4, 250: 2})
QUICK = Plan({0: 4, 20: 2}, sequences=(4,), lanes=(2,), repetitions=1)


def rtt(cache: Path, *, quick: bool, threads: int, progress: Progress) -> list[Result]:
    """Raises SideFailed."""
    plan = QUICK if quick else FULL
    index = open_index(DEMO_MODEL)
    held = even(index.offered_layers, index.experts_per_layer, WORKERS)
    groups = {name_of(ms): Group(held, round_trip=ms / 1000, processes=WORKERS) for ms in plan.steps}
    results: list[Result] = []
    with site(DEMO_MODEL, cache / "rig", groups) as here:
        for number, lanes in enumerate(plan.lanes):
            progress(number / len(plan.lanes), f"{lanes} lanes")
            options = Options(str(DEMO_MODEL), here.url, lanes, max(plan.sequences), threads)
            with backbone(options, here) as child:
                for place, sequences in enumerate(plan.sequences):
                    share = (number + place / len(plan.sequences)) / len(plan.lanes)
                    progress(share, f"{lanes} lanes, {sequences} sequences")
                    rounds = _rounds(here, child, plan, sequences)
                    results += as_results(rounds, lanes, sequences, len(index.offered_layers))
    return results


def name_of(milliseconds: int) -> str:
    return f"rtt{milliseconds}"


def _rounds(here: Site, child: Client, plan: Plan, sequences: int) -> dict[int, list[Round]]:
    """By round trip; the round trips alternate."""
    child.ask(prepare=sequences)
    rounds: dict[int, list[Round]] = {ms: [] for ms in plan.steps}
    for _ in range(plan.repetitions):
        for ms, steps in plan.steps.items():
            child.ask(use=name_of(ms), workers=WORKERS)
            child.ask(round=1)  # credit and graphs of this batch settle
            rounds[ms].append(measure(here, child, round=steps))
    return rounds


def as_results(rounds: dict[int, list[Round]], lanes: int, sequences: int, layers: int) -> Iterator[Result]:
    """One case per round trip."""
    undelayed = [one.per_second for one in rounds[0]]
    for ms, ones in rounds.items():
        samples = [one.per_second for one in ones]
        extra = {
            "lanes": lanes,
            "sequences": sequences,
            "round_trip_ms": ms,
            "layer_ms": round(1000 * sequences / (layers * statistics.median(samples)), 2),
            "relay": SERVER_PROGRAM,
            **summary(ones),
        }
        case = f"{name_of(ms)}/lanes{lanes}/seq{sequences}"
        if ms == 0:
            yield Result(case, "tokens/s", samples, extra={**extra, "note": _cost(extra)})
            continue
        by_round_trips = sequences / (layers * ms / 1000)
        limits = [min(by_round_trips, rate) for rate in undelayed]
        yield Result(
            case,
            "tokens/s",
            samples,
            peer=LIMIT_WHAT,
            peer_samples=limits,
            limit=statistics.median(limits),
            limit_what=LIMIT_WHAT,
            goal=GOAL if ms == GOAL_MILLISECONDS else None,
            extra=extra,
        )


def _cost(extra: dict[str, object]) -> str:
    return f"{extra['layer_ms']} ms per layer, {extra['busy_share']} of all cores busy"
