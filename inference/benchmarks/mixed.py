"""`manage.py bench mixed`: short and long requests at once: who waits for whom.

Most requests are short (16 tokens of prompt), some long (600), all want the same number of tokens back; two workers
behind lines of 20 ms compute the experts of generated tokens, prompts are read here. First the capacity is measured: as
many askers as sequences, each asks anew when its answer ends. Then requests arrive at random (Poisson) at BELOW of that
rate, and at ABOVE of it. Told per kind: seconds to the first token and between tokens; the goodput: tokens per second
of the answers whose first token came within PATIENCE_SECONDS, against what was asked for; and the longest wait of each
kind, because nobody may starve.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from inference.benchmarks.progress import Progress
from inference.benchmarks.relay.processes import Client, obedient
from inference.benchmarks.report import Result
from inference.benchmarks.rig.placement import even
from inference.benchmarks.rig.serving import Load, Options
from inference.benchmarks.rig.site import Group, Site, site
from inference.gguf_index import open_index
from inference.synthetic import DEMO_MODEL

GROUP, WORKERS, ROUND_TRIP = "workers", 2, 0.02
PATIENCE_SECONDS = 2.0
GOAL = 0.95
KINDS = (("short", 0.8, 16, 32), ("long", 0.2, 600, 32))
BELOW, ABOVE = 0.7, 1.5

Answers = list[dict[str, Any]]
Kinds = tuple[tuple[str, float, int, int], ...]


@dataclass(frozen=True)
class Plan:
    """Seconds of each part; kinds: as in `Load`."""

    kinds: Kinds
    capacity: float
    below: float
    above: float

    def load(self, seconds: float, rate: float = 1.0, seed: int = 0) -> dict[str, Any]:
        return asdict(Load(rate, seconds, self.kinds, seed))


FULL = Plan(KINDS, capacity=30.0, below=50.0, above=30.0)
QUICK = Plan((("short", 0.5, 8, 6), ("long", 0.5, 200, 6)), capacity=2.0, below=1.5, above=0.5)


def mixed(cache: Path, *, quick: bool, threads: int, progress: Progress) -> list[Result]:
    """Raises SideFailed."""
    plan = QUICK if quick else FULL
    with serving_backbone(cache, threads) as (_, child, options):
        floor = ROUND_TRIP * len(open_index(DEMO_MODEL).offered_layers)
        return list(_measure(child, plan, options.sequences, floor, progress))


@contextmanager
def serving_backbone(cache: Path, threads: int) -> Iterator[tuple[Site, Client, Options]]:
    """A backbone that takes requests, and uses the workers behind slow lines. Raises SideFailed."""
    index = open_index(DEMO_MODEL)
    held = even(index.offered_layers, index.experts_per_layer, WORKERS)
    group = Group(held, round_trip=ROUND_TRIP, processes=WORKERS)
    with site(DEMO_MODEL, cache / "rig", {GROUP: group}) as here:
        options = Options(str(DEMO_MODEL), here.url, threads=threads)
        with obedient("inference.benchmarks.rig.serving", options.to_json()) as child:
            child.ask(use=GROUP, workers=WORKERS)
            yield here, child, options


def _measure(child: Client, plan: Plan, clients: int, floor: float, progress: Progress) -> Iterator[Result]:
    progress(0.0, "capacity")
    full = child.ask(closed=plan.load(plan.capacity, seed=1), clients=clients)
    rate = full["per_second"] or len(full["answers"]) / full["seconds"]  # none ended: too short, as in a smoke run
    note = f"{clients} askers at any time, second half of {plan.capacity:g} s"
    yield Result("capacity", "answers/s", [rate], extra={"clients": clients, "note": note})
    for number, (share, seconds) in enumerate(((BELOW, plan.below), (ABOVE, plan.above)), start=1):
        progress(number / 3, f"{share:g} of the capacity")
        answer = child.ask(load=plan.load(seconds, share * rate, seed=number))
        yield from as_results(answer, share, share * rate, plan.kinds, floor)


def as_results(answer: dict[str, Any], share: float, rate: float, kinds: Kinds, floor: float) -> Iterator[Result]:
    """share: of the capacity, that makes `rate` requests per second; floor: seconds between two tokens that the round
    trips alone take."""
    answers: Answers = answer["answers"]
    if not answers:
        return  # nobody came
    name = f"load{share:g}"
    worst_of: dict[str, float] = {}
    for kind, _, prompt_tokens, _ in kinds:
        mine = [one for one in answers if one["kind"] == kind]
        if not mine:
            continue
        waits = sorted(one["wait"] for one in mine)
        gaps = [1000 * gap for one in mine for gap in one["gaps"]]
        facts = {"requests": len(mine), "prompt_tokens": prompt_tokens, "requests_per_second": rate}
        p99, worst = float(np.percentile(waits, 99)), waits[-1]
        worst_of[kind] = worst
        yield Result(
            f"{name}/{kind}/first token",
            "s",
            waits,
            extra={**facts, "p99": p99, "worst": worst, "note": f"p99 {p99:.2f} s, worst {worst:.2f} s of {len(mine)}"},
        )
        p99 = float(np.percentile(gaps, 99))
        yield Result(
            f"{name}/{kind}/between tokens",
            "ms",
            [float(np.median(gaps))],
            limit=1000 * floor,
            limit_what="layers x round trip: no token is sooner",
            extra={**facts, "p99": p99, "note": f"p99 {p99:.0f} ms, floor {1000 * floor:.0f} ms"},
        )
    asked = sum(one["tokens"] for one in answers)
    in_time = sum(one["tokens"] for one in answers if one["wait"] is not None and one["wait"] <= PATIENCE_SECONDS)
    seconds = answer["seconds"]
    failed = [one["finish"] for one in answers if one["finish"] != "length"]
    yield Result(
        f"{name}/goodput",
        "tokens/s",
        [in_time / seconds],
        peer=f"all that was asked for; counted: first token within {PATIENCE_SECONDS:g} s",
        peer_samples=[asked / seconds],
        goal=GOAL if share < 1 else None,
        extra={
            "failed": failed,
            "requests": len(answers),
            "requests_per_second": rate,
            "worst_wait_seconds": worst_of,
            "places": answer["places"],
        },
    )
