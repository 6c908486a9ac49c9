"""`bench market`: the event store, the fold and the claims on both databases.

append is compared with the recorder of the `eventsourcing` library on the same PostgreSQL server (same bodies, same
batches, same durability, one commit per batch). The other goals are absolute, or relative to the same run.
"""

import statistics
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inference.benchmarks.progress import ProgressBar
from inference.benchmarks.report import Result
from market.benchmarks import databases, history, measure, peer
from market.builds import BuildDescription

CLAIMERS = 64
OFFERED_PER_SECOND = 50.0
GOAL_FOLD, GOAL_MODELS = 50_000.0, 5_000.0
GOAL_OPEN_SECONDS, GOAL_DEMAND_SECONDS, GOAL_CLOSED = 0.100, 0.030, 2.5
# Qwen3.5-122B-A10B in Q4_K_M.
BUILD = BuildDescription(
    "0" * 32, "122B", "qwen35moe", 3072, 1024, 256, 8, tuple(range(48)), (5_308_416,) * 48, (("Q4_K",),) * 48
)


@dataclass(frozen=True)
class Sizes:
    batches: tuple[int, ...]
    repetitions: int
    events: int
    rounds: int
    open_seconds: float
    replicas: int
    questions: int


FULL = Sizes((1, 10, 100), 60, 50_000, 4, 10.0, 10_000, 200)
QUICK = Sizes((10,), 3, 3_000, 1, 0.5, 200, 5)


def market(_cache: Path, *, quick: bool, threads: int, progress: ProgressBar) -> list[Result]:
    """All cases on SQLite, then on PostgreSQL where there is one. threads: of no use here, claimers are always 64."""
    sizes = QUICK if quick else FULL
    steps = _Steps(progress)
    steps("an ordinary day")
    events = history.ordinary_day(BUILD, sizes.events, sizes.replicas)
    results = [_replay_fold(events, sizes, steps)]
    results += _database("sqlite", databases.sqlite_database, sizes, events, steps)
    with databases.postgres_server() as url:
        if url is None:
            progress.clear()
            sys.stderr.write(f"postgresql is left out: {databases.INSTALL_HINT}\n")
            return results
        results += _database("postgresql", lambda: databases.postgres_database(url), sizes, events, steps)
    return results


class _Steps:
    """The progress bar, a step at a time."""

    TOTAL = 14

    def __init__(self, progress: ProgressBar) -> None:
        self._progress, self._done = progress, 0

    def __call__(self, what: str) -> None:
        self._progress(self._done / self.TOTAL, what)
        self._done += 1


Fresh = Callable[[], AbstractContextManager[Any]]


def _at_least(case: str, unit: str, samples: Sequence[float], goal: float, **extra: Any) -> Result:
    met = statistics.median(samples) >= goal
    note = f"goal: at least {goal:,.0f} {unit}: {'met' if met else 'MISSED'}"
    return Result(case, unit, samples, extra={"goal": goal, "goal_what": "at least", "met": met, "note": note, **extra})


def _at_most(case: str, found: measure.Latencies, goal_seconds: float, what: str) -> Result:
    """The 99th percentile in milliseconds."""
    worst = found.percentile(0.99)
    met = worst <= goal_seconds
    note = f"p99, goal: at most {goal_seconds * 1000:.0f} ms ({what}): {'met' if met else 'MISSED'}"
    extra = {
        "goal": goal_seconds * 1000,
        "goal_what": f"at most; {what}",
        "met": met,
        "note": note,
        "median_ms": round(found.percentile(0.5) * 1000, 3),
        "per_second": round(found.per_second, 2),
        "operations": len(found.seconds),
    }
    return Result(case, "ms", [worst * 1000], extra=extra)


def _replay_fold(events: list[Any], sizes: Sizes, steps: _Steps) -> Result:
    steps("replay_fold")
    speeds = [measure.fold_per_second(events) for _ in range(min(5, sizes.repetitions))]
    return _at_least("replay_fold", "events/s", speeds, GOAL_FOLD, events=len(events))


def _append_case(size: int, library: peer.Peer | None, repetitions: int) -> Result:
    case, speed = f"append postgresql batch={size}", "events/s"
    if library is None:
        samples = [size / measure.append_seconds(measure.batch(size)) for _ in range(repetitions)]
        return Result(case, speed, samples, extra={"note": "no peer: `pip install -r requirements-dev.txt`"})
    ours, theirs = measure.interleaved(
        lambda: measure.append_seconds(measure.batch(size)),
        lambda: measure.peer_seconds(library, measure.batch(size)),
        repetitions,
    )
    return Result(
        case, speed, [size / s for s in ours], peer=peer.NAME, peer_samples=[size / s for s in theirs], goal=1.0
    )


def _database(vendor: str, fresh: Fresh, sizes: Sizes, events: list[Any], steps: _Steps) -> list[Result]:
    """Everything on one database: first while it is empty, then with a day's history."""
    with fresh() as where:
        results = _append(where, sizes, steps) if where else []
        results += _projected(vendor, sizes, steps)
        steps(f"{vendor}: claim_closed64")
        nodes = measure.register(CLAIMERS)
        closed = measure.claims_closed(BUILD, nodes, sizes.rounds)
        steps(f"{vendor}: claim_open50")
        opened = measure.claims_open(BUILD, nodes, OFFERED_PER_SECOND, sizes.open_seconds)
    fair = GOAL_CLOSED * CLAIMERS / closed.per_second
    results.append(_at_most(f"claim_closed64 {vendor}", closed, fair, f"{GOAL_CLOSED} x {CLAIMERS} / claims/s"))
    results.append(_at_most(f"claim_open50 {vendor}", opened, GOAL_OPEN_SECONDS, "50 claims/s offered"))
    with fresh():
        steps(f"{vendor}: replay_models")
        history.write(events)
        speeds = [measure.rebuild_per_second() for _ in range(min(3, sizes.repetitions))]
        steps(f"{vendor}: demand_map")
        asked = measure.demand_map(measure.register(1)[0], sizes.questions)
    results.append(_at_least(f"replay_models {vendor}", "events/s", speeds, GOAL_MODELS, events=len(events)))
    what = f"12,288 experts, {sizes.replicas:,} replicas"
    results.append(_at_most(f"demand_map {vendor}", asked, GOAL_DEMAND_SECONDS, what))
    return results


def _append(where: dict[str, Any], sizes: Sizes, steps: _Steps) -> list[Result]:
    """events/s of the store and of its peer, batch by batch in turn."""
    results = []
    with peer.peer(where) as library:
        for size in sizes.batches:
            steps(f"append, {size} at a time")
            results.append(_append_case(size, library, sizes.repetitions))
    return results


def _projected(vendor: str, sizes: Sizes, steps: _Steps) -> list[Result]:
    """The store with its projections: credits of ten windows at a time."""
    steps(f"{vendor}: append_projected")
    measure.publish(BUILD)
    speeds = [10 / measure.append_projected_seconds(10, BUILD.fingerprint) for _ in range(sizes.repetitions)]
    return [Result(f"append_projected {vendor} batch=10", "events/s", speeds)]
