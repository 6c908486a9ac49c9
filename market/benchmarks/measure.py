"""One function per case; each returns plain numbers. The default database is the one that is measured."""

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import uuid4

from django.db import connection

from market import commands, fold, offers, queries, replay, store
from market import events as e
from market.benchmarks.peer import Peer
from market.builds import BuildDescription
from market.errors import BudgetExhausted, NoWork
from market.ledger import credit_postings

AT = datetime(2026, 1, 1, tzinfo=UTC)
OPEN_THREADS = 32


@dataclass(frozen=True)
class Latencies:
    """Seconds per operation, and operations per second over the whole run."""

    seconds: tuple[float, ...]
    per_second: float

    def percentile(self, share: float) -> float:
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


_numbers = itertools.count(1)


def count_from(number: int) -> None:
    """Devices made here are numbered from there: writers of several processes must not meet."""
    global _numbers
    _numbers = itertools.count(number)


def batch(size: int) -> list[e.Event]:
    """A node registers and is credited: what fills an event table. One stream, as the peer's aggregates."""
    node = f"{next(_numbers):016x}"
    postings = credit_postings(node, 1234)
    work = (e.WorkLine(3, 1000, None, 0), e.WorkLine(7, 1200, None, 0))
    return [e.WorkCredited(f"{node}/{n}", "0" * 32, node, AT, AT, work, True, postings, AT) for n in range(size)]


def append_seconds(events: Sequence[e.Event]) -> float:
    began = time.perf_counter()
    with store.writing():
        store.record(events, {}, None)
    return time.perf_counter() - began


def peer_seconds(library: Peer, events: Sequence[e.Event]) -> float:
    originator = uuid4()
    began = time.perf_counter()
    library.append(originator, events)
    return time.perf_counter() - began


def publish(build: BuildDescription) -> None:
    commands.publish_build(build)


def append_projected_seconds(size: int, build: str) -> float:
    """A node registers, then its credits, appended together with all that they change in the read models."""
    node = f"{next(_numbers):016x}"
    store.append([e.NodeRegistered(node, "numpy", None, node.rjust(64, "1"), AT)])
    credits: list[e.Event] = []
    for number in range(size):
        work = (e.WorkLine(number % 4, 1000, None, 0),)
        credits.append(e.WorkCredited(f"{node}/{number}", build, node, AT, AT, work, True, (), AT))
    began = time.perf_counter()
    store.append(credits)
    return time.perf_counter() - began


def fold_per_second(history: Sequence[e.Recorded]) -> float:
    began = time.perf_counter()
    fold.fold(history)
    return len(history) / (time.perf_counter() - began)


def rebuild_per_second() -> float:
    """Every read model of the database made again from its events."""
    began = time.perf_counter()
    events = replay.rebuild()
    return events / (time.perf_counter() - began)


def register(count: int) -> list[str]:
    return [commands.register_node(f"claimer {number}", "numpy")[0] for number in range(count)]


def claims_closed(build: BuildDescription, nodes: Sequence[str], rounds: int) -> Latencies:
    """Every node is a thread that claims again as soon as it was answered, `rounds` times."""
    barrier = threading.Barrier(len(nodes) + 1)
    taken: list[float] = []
    began = [0.0]

    def work(number: int) -> None:
        connection.ensure_connection()
        barrier.wait()
        for _ in range(rounds):
            taken.append(_claim_seconds(nodes[number], build))

    def begin() -> None:
        barrier.wait()
        began[0] = time.perf_counter()

    _in_threads(len(nodes), work, begin)
    return Latencies(tuple(taken), len(taken) / (time.perf_counter() - began[0]))


def _claim_seconds(node: str, build: BuildDescription) -> float:
    began = time.perf_counter()
    with suppress(NoWork, BudgetExhausted):
        commands.claim_best(node, max(build.expert_bytes), build.fingerprint)
    return time.perf_counter() - began


def claims_open(build: BuildDescription, nodes: Sequence[str], per_second: float, seconds: float) -> Latencies:
    """Claims that arrive at a fixed rate, whether or not earlier ones were answered; measured from their due time."""
    due = [number / per_second for number in range(int(per_second * seconds))]
    waiting = iter(range(len(due)))
    taken: list[float] = []
    # The first claim of a thread opens its connection: that is no part of any latency.
    opened = threading.Barrier(OPEN_THREADS + 1)
    start = [0.0]

    def work(_number: int) -> None:
        connection.ensure_connection()
        opened.wait()
        opened.wait()
        # next() on one iterator is atomic: every number is taken by one thread.
        for number in waiting:
            time.sleep(max(0.0, start[0] + due[number] - time.perf_counter()))
            _claim_seconds(nodes[number % len(nodes)], build)
            taken.append(time.perf_counter() - start[0] - due[number])

    def begin() -> None:
        opened.wait()
        start[0] = time.perf_counter() + 0.1
        opened.wait()

    _in_threads(OPEN_THREADS, work, begin)
    return Latencies(tuple(taken), len(taken) / (time.perf_counter() - start[0]))


def _in_threads(count: int, work: Callable[[int], None], begin: Callable[[], None]) -> None:
    """Starts work(0) .. work(count - 1), each with a connection of its own, calls `begin`, waits for all."""

    def run(number: int) -> None:
        try:
            work(number)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    begin()
    for thread in threads:
        thread.join()


def demand_map(node_id: str, count: int) -> Latencies:
    """GET /api/demand without HTTP: every range of every build, ranked for one device."""
    node = queries.node(node_id)
    assert node is not None
    taken = []
    began = time.perf_counter()
    for _ in range(count):
        start = time.perf_counter()
        offers.offers_for(node, 340_000_000)
        taken.append(time.perf_counter() - start)
    return Latencies(tuple(taken), count / (time.perf_counter() - began))


Step = Callable[[], float]


def interleaved(ours: Step, theirs: Step, repetitions: int) -> tuple[list[float], list[float]]:
    """Ours, theirs, ours, theirs ... after one of each that is not counted."""
    ours(), theirs()
    pairs = [(ours(), theirs()) for _ in range(repetitions)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]
