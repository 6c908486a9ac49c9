"""The cases of `bench scale`, see the package's docstring."""

import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inference.benchmarks.api.stack import Child
from inference.benchmarks.progress import Progress
from inference.benchmarks.relay.processes import Client, client, serving
from inference.benchmarks.report import Result
from inference.benchmarks.scale.stack import ScaleStack, running_stack
from market.builds import BuildDescription

WRITERS = 4
# A worker without work asks again after 30 to 60 s (docs/deploy.md, timers).
POLL_SECONDS = 45.0
ROUND_TRIP_BYTES, WINDOW = 6_000, 16
MEGABYTE_BYTES, MEGABYTE_WINDOW = 64_000, 8
BUILD = BuildDescription(
    fingerprint="5ca1e" + "0" * 27, name="bench scale", architecture="qwen35moe", n_embd=3072, n_ff=1024,
    experts_per_layer=256, experts_used=8, layers=tuple(range(48)), expert_bytes=(5_308_416,) * 48,
    expert_types=(("Q4_K", "Q4_K", "Q4_K"),) * 48,
)  # fmt: skip


@dataclass(frozen=True)
class Plan:
    devices: int = 2_000
    pairs: int = 7
    seconds: float = 1.5
    poll_seconds: float = 30.0
    connections: int = 16


QUICK = Plan(devices=200, pairs=1, seconds=0.3, poll_seconds=1.0, connections=4)
Side = Callable[[], float]


def scale(cache: Path, *, quick: bool, threads: int, progress: Progress) -> list[Result]:
    """Raises SideFailed when a process dies, or where there is no PostgreSQL."""
    plan = QUICK if quick else Plan()
    results = []
    with tempfile.TemporaryDirectory(dir=cache, prefix="scale-") as folder:
        progress(0.0, f"registering {plan.devices} devices")
        with running_stack(Path(folder), plan.devices, BUILD) as stack:
            with stack.child("asker", "inference.benchmarks.scale.asker") as asker:
                progress(0.1, "requests")
                results.append(_requests(stack, asker, plan))
                progress(0.3, f"{plan.devices} devices poll")
                results.append(_polls(stack, asker, plan))
            progress(0.5, "events")
            results.append(_events(stack, plan))
    progress(0.7, "relays")
    results += _relays(plan)
    return results


def _pairs(plan: Plan, ours: Side, peer: Side) -> tuple[list[float], list[float]]:
    """Ours, peer, peer, ours ... after one of each that is not counted."""
    found: dict[Side, list[float]] = {ours: [], peer: []}
    for pair in range(-1, plan.pairs):
        for side in (ours, peer) if pair % 2 == 0 else (peer, ours):
            value = side()
            if pair >= 0:
                found[side].append(value)
    return found[ours], found[peer]


def _shared() -> dict[str, Any]:
    cores = len(os.sched_getaffinity(0))
    return {"note": f"servers, stores and clients share {cores} cores"}


def _requests(stack: ScaleStack, asker: Child, plan: Plan) -> Result:
    """`GET /api/me` of one device after another: its token, claims and balances, from the database."""
    tokens = list(stack.tokens[:100])
    order = {"path": "/api/me", "tokens": tokens, "connections": plan.connections, "seconds": plan.seconds}
    failed = 0

    def through(count: int) -> Side:
        def side() -> float:
            nonlocal failed
            answer = asker.ask(ports=list(stack.ports[:count]), **order)
            failed += answer["failed"]
            return float(answer["count"] / answer["seconds"])

        return side

    two, one = _pairs(plan, through(2), through(1))
    extra = {"peer_samples": one, "failed": failed, "note": f"{failed} failed; {_shared()['note']}"}
    return Result("requests, 2 web processes", "requests/s", two, "1 web process", one, extra=extra)


def _polls(stack: ScaleStack, asker: Child, plan: Plan) -> Result:
    """Every device asks for work about every 45 s: milliseconds from the due time to the answer."""
    per_second = len(stack.tokens) / POLL_SECONDS
    answer = asker.ask(
        ports=list(stack.ports), path="/api/demand?budget_bytes=340000000", tokens=list(stack.tokens),
        connections=plan.connections, seconds=plan.poll_seconds, per_second=per_second,
    )  # fmt: skip
    taken = sorted(answer["milliseconds"])
    extra = {
        "per_second": per_second,
        "failed": answer["failed"],
        "p95": taken[int(0.95 * (len(taken) - 1))],
        "worst": taken[-1],
    }
    note = f"{per_second:.1f} polls/s, {answer['failed']} failed, 95%: {extra['p95']:.0f} ms, worst {taken[-1]:.0f} ms"
    case = f"{len(stack.tokens)} registered devices poll, 12,288 experts"
    return Result(case, "ms", taken, extra={**extra, "samples": taken[:: max(1, len(taken) // 50)], "note": note})


def _events(stack: ScaleStack, plan: Plan) -> Result:
    """Four processes that credit work, against one."""
    with ExitStack() as writers:
        children = [
            writers.enter_context(
                stack.child(f"writer-{number}", "inference.benchmarks.scale.writer", BUILD.fingerprint)
            )
            for number in range(WRITERS)
        ]

        def by(count: int) -> Side:
            def side() -> float:
                with ThreadPoolExecutor(count) as pool:
                    answers = list(pool.map(lambda child: child.ask(seconds=plan.seconds), children[:count]))
                return float(sum(answer["events"] / answer["seconds"] for answer in answers))

            return side

        four, one = _pairs(plan, by(WRITERS), by(1))
    extra = {"peer_samples": one, **_shared()}
    return Result(f"events on PostgreSQL, {WRITERS} writers", "events/s", four, "1 writer", one, extra=extra)


def _relays(plan: Plan) -> list[Result]:
    """Two relay processes, each with a backbone and a worker of its own, against one."""
    with ExitStack() as stack:
        backbones: list[Client] = []
        for _ in range(2):
            server = stack.enter_context(serving("uvicorn"))
            stack.enter_context(client("client", server.port, "worker"))
            backbones.append(stack.enter_context(client("client", server.port, "backbone")))

        def through(count: int, size: int, window: int) -> Side:
            def side() -> float:
                with ThreadPoolExecutor(count) as pool:
                    answers = pool.map(
                        lambda one: one.ask(relay=size, window=window, seconds=plan.seconds), backbones[:count]
                    )
                    return float(sum(answer["count"] / answer["seconds"] for answer in answers))

            return side

        results = []
        for size, window in ((ROUND_TRIP_BYTES, WINDOW), (MEGABYTE_BYTES, MEGABYTE_WINDOW)):
            two, one = _pairs(plan, through(2, size, window), through(1, size, window))
            case = f"round trips {size // 1000} kB, 2 relay processes"
            moved = 2 * size * sorted(two)[len(two) // 2] / 1e6
            extra = {"peer_samples": one, "megabytes_per_second": moved, **_shared()}
            results.append(Result(case, "round trips/s", two, "1 relay process", one, extra=extra))
        return results
