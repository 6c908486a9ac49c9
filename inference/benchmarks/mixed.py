"""`manage.py bench mixed`: short and long requests at once: who waits for whom.

Requests arrive at random (Poisson), most short (16 tokens of prompt), some long (600), all want the same number of
tokens back; two workers behind lines of 20 ms compute the experts of generated tokens, prompts are read here. Told per
kind: seconds to the first token, between tokens, and the goodput: tokens per second of the answers whose first token
came within PATIENCE_SECONDS, against what was asked for. Nobody starves: the longest wait is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from inference.benchmarks.relay.processes import Client, obedient
from inference.benchmarks.report import Result
from inference.benchmarks.rig.placement import even
from inference.benchmarks.rig.serving import Load, Options
from inference.benchmarks.rig.site import Group, site
from inference.gguf_index import open_index
from inference.synthetic import DEMO_MODEL

GROUP, WORKERS, ROUND_TRIP = "workers", 2, 0.02
PATIENCE_SECONDS = 2.0
GOAL = 0.95
KINDS = (("short", 0.8, 16, 32), ("long", 0.2, 600, 32))
FULL = Load(rate=1.5, seconds=80.0, kinds=KINDS)
QUICK = Load(rate=4.0, seconds=1.5, kinds=(("short", 0.5, 8, 6), ("long", 0.5, 200, 6)))

Progress = Callable[[float, str], None]
Answers = list[dict[str, Any]]


def mixed(cache: Path, *, quick: bool, threads: int, progress: Progress) -> list[Result]:
    """Raises SideFailed."""
    load = QUICK if quick else FULL
    index = open_index(DEMO_MODEL)
    group = Group(
        even(index.offered_layers, index.experts_per_layer, WORKERS), round_trip=ROUND_TRIP, processes=WORKERS
    )
    with site(DEMO_MODEL, cache / "rig", {GROUP: group}) as here:
        options = Options(str(DEMO_MODEL), here.url, threads=threads)
        with obedient("inference.benchmarks.rig.serving", options.to_json()) as child:
            child.ask(use=GROUP, workers=WORKERS)
            floor = ROUND_TRIP * len(index.offered_layers)
            results: list[Result] = []
            for share in (1.0,) if quick else (0.1, 1.0):  # nearly alone, then the whole rate
                progress(1 - share, f"{load.rate * share:g} requests/s")
                results += as_results(_run(child, load, share), load.rate * share, load, floor)
    return results


def _run(child: Client, load: Load, share: float) -> dict[str, Any]:
    body = {**asdict(load), "rate": load.rate * share}
    if share < 1:
        body["seconds"] = load.seconds / 2
    return child.ask(load=body)


def as_results(answer: dict[str, Any], rate: float, load: Load, floor: float) -> Iterator[Result]:
    """floor: seconds between two tokens that the round trips alone take."""
    answers: Answers = answer["answers"]
    if not answers:
        return  # nobody came
    name = f"rate{rate:g}"
    for kind, _, prompt_tokens, _ in load.kinds:
        mine = [one for one in answers if one["kind"] == kind]
        if not mine:
            continue
        waits = sorted(one["wait"] for one in mine)
        gaps = [1000 * gap for one in mine for gap in one["gaps"]]
        facts = {"requests": len(mine), "prompt_tokens": prompt_tokens}
        p99, worst = float(np.percentile(waits, 99)), waits[-1]
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
        goal=GOAL,
        extra={"failed": failed, "requests": len(answers), "places": answer["places"]},
    )
