"""`manage.py bench api`: what the API costs: streaming clients against the same engine, in the same process, alone.

A whole server is started for it (Redis, web server, the Celery worker that hosts the engine; no expert workers). Rounds
alternate: N clients stream N answers over HTTP; then the backbone process gives the same N requests straight to its
engine and only counts the tokens. Both sides read the same prompts greedily and cannot end early. The clients run in a
process of their own that reads bytes and looks at them only after the clock has stopped; web server, Redis, clients and
engine share the cores, so on a small machine every microsecond of theirs is one that the engine does not have.
`cpu_ratio` compares the processor time of all processes instead of the clock: it hardly depends on what else runs.
"""

from __future__ import annotations

import statistics
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inference.benchmarks.api.stack import Stack, running_stack
from inference.benchmarks.progress import Progress
from inference.benchmarks.report import Result

PEER = "the engine alone, same process"
GOAL = 0.9
MEGABYTE = 1e6


@dataclass(frozen=True)
class Plan:
    clients: tuple[int, ...] = (16, 64)
    tokens: int = 800
    pairs: int = 3


QUICK = Plan(clients=(4,), tokens=12, pairs=1)


@dataclass
class Rounds:
    """What the rounds of one case gave; memory: bytes per process before and after them."""

    ours: list[float] = field(default_factory=list)
    peers: list[float] = field(default_factory=list)
    cpu_ratios: list[float] = field(default_factory=list)
    first_token_seconds: list[float] = field(default_factory=list)
    wrong_streams: int = 0
    before: dict[str, int] = field(default_factory=dict)
    after: dict[str, int] = field(default_factory=dict)


def api(cache: Path, *, quick: bool, threads: int, progress: Progress) -> list[Result]:
    """Raises SideFailed when a process of the server dies."""
    plan = QUICK if quick else Plan()
    with tempfile.TemporaryDirectory(dir=cache, prefix="api-") as folder:
        progress(0.0, "starting a server")
        with running_stack(Path(folder), sequences=max(plan.clients), threads=threads) as stack:
            results: list[Result] = []
            for number, clients in enumerate(plan.clients):
                rounds = measure(stack, plan, clients, _part_of(progress, number, len(plan.clients)))
                results += as_results(clients, rounds)
            return results


def measure(stack: Stack, plan: Plan, clients: int, progress: Progress) -> Rounds:
    rounds = Rounds()
    for pair in range(-1, plan.pairs):  # the first pair warms up
        progress((pair + 1) / (plan.pairs + 1), f"{clients} clients")
        sides = [stack.over_http, stack.engine_alone]
        answers = {}
        for side in sides if pair % 2 == 0 else reversed(sides):
            answers[side] = side(clients, plan.tokens)
        if pair < 0:
            rounds.before = stack.memory()
            continue
        ours, peer = answers[stack.over_http], answers[stack.engine_alone]
        rounds.ours.append(ours["tokens"] / ours["seconds"])
        rounds.peers.append(peer["tokens"] / peer["seconds"])
        rounds.cpu_ratios.append(peer["cpu_seconds"] / ours["cpu_seconds"])
        rounds.first_token_seconds += ours["first_token_seconds"]
        rounds.wrong_streams += ours["wrong_streams"]
    rounds.after = stack.memory()
    return rounds


def as_results(clients: int, rounds: Rounds) -> list[Result]:
    grown = {name: (rounds.after[name] - rounds.before[name]) / MEGABYTE for name in rounds.after}
    first = sorted(rounds.first_token_seconds)
    extra: dict[str, Any] = {
        "peer_samples": rounds.peers,
        "cpu_ratio": statistics.median(rounds.cpu_ratios),
        "wrong_streams": rounds.wrong_streams,
        "memory_megabytes": {name: round(size / MEGABYTE, 1) for name, size in rounds.after.items()},
        "memory_growth_megabytes": {name: round(size, 1) for name, size in grown.items()},
        "note": f"{rounds.wrong_streams} streams with a lost or doubled token; memory grew by "
        + ", ".join(f"{size:+.1f} MB ({name})" for name, size in grown.items()),
    }
    return [
        Result(f"clients={clients}", "tokens/s", rounds.ours, PEER, rounds.peers, goal=GOAL, extra=extra),
        Result(
            f"clients={clients} first token",
            "s",
            first,
            extra={"p95": first[int(0.95 * (len(first) - 1))], "worst": first[-1], "median": statistics.median(first)},
        ),
    ]


def _part_of(progress: Progress, number: int, count: int) -> Progress:
    return lambda share, text: progress((number + share) / count, text)
