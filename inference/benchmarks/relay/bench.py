"""The cases of `bench relay`, see the package's docstring for what is compared with what."""

import queue
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from inference.benchmarks.overhead import SideFailed
from inference.benchmarks.progress import Progress
from inference.benchmarks.relay.names import BACKBONE_TOKEN, BUILD, LAYER
from inference.benchmarks.relay.processes import Client, Server, client, serving
from inference.benchmarks.report import Result, pair_ratio
from relay.backbone_link import BackboneLink
from relay.work import Dispatch, Failed, Outcome

GOAL = 0.8
# Body bytes: round trips under way at once.
SIZES = {6_000: 16, 64_000: 8, 512_000: 2}
PEER = "the same clients through a consumer that passes messages on unread"
# The 122B's shape: 64 tokens x top 8, spread evenly; Q8 rows out, one float32 row per pair back.
OWNERS, TOKENS, TOP, WIDTH = 16, 64, 8, 3072
Q8_ROW_BYTES = WIDTH // 256 * 260
IDLE, BUSY = 1_000, 300
JOIN_SECONDS = 60.0


class Round(NamedTuple):
    per_second: float
    trips: int
    cpu_seconds: float


def relay(cache: Path, *, quick: bool, threads: int, progress: Progress) -> list[Result]:
    """All cases. Raises SideFailed."""
    results: list[Result] = []
    pairs, seconds = (3, 0.1) if quick else (25, 0.3)
    for number, program in enumerate(("daphne", "uvicorn")):
        with serving(program) as server:
            tell = partial(_tell, progress, number)
            results += _round_trips(program, server, pairs, seconds, tell)
        with serving(program) as server:
            results.append(_layer(program, server, 10 if quick else 60))
    with serving("daphne") as server:
        progress(0.9, "sessions")
        results += _sessions(server, *((50, 15) if quick else (IDLE, BUSY)))
    return results


def _tell(progress: Progress, number: int, share: float, text: str) -> None:
    progress(0.45 * (number + share), text)


def _round_trips(
    program: str, server: Server, pairs: int, seconds: float, tell: Callable[[float, str], None]
) -> list[Result]:
    with client("client", server.port, "worker"), client("client", server.port, "backbone") as backbone:
        results: list[Result] = []
        for number, (size, window) in enumerate(SIZES.items()):
            samples: dict[str, list[Round]] = {"relay": [], "pass": [], "echo": []}
            for pair in range(pairs):
                tell((number + pair / pairs) / len(SIZES), f"{program}, {size} bytes")
                # Every other pair the order turns.
                for kind in samples if pair % 2 else reversed(samples):
                    samples[kind].append(_round(server, backbone, kind, size, window, seconds))
            results += _rates(program, size, samples)
        return results


def _round(server: Server, backbone: Client, kind: str, size: int, window: int, seconds: float) -> Round:
    before = server.cpu_seconds()
    answer = backbone.ask(**{kind: size, "window": window, "seconds": seconds})
    return Round(answer["count"] / answer["seconds"], answer["count"], server.cpu_seconds() - before)


def _rates(program: str, size: int, samples: dict[str, list[Round]]) -> Iterator[Result]:
    """Round trips and bytes per second: `peer` is the pass-through; the one-client echo is told beside it."""
    rates = {kind: [one.per_second for one in rounds] for kind, rounds in samples.items()}
    costs = {
        kind: sum(one.cpu_seconds for one in rounds) / sum(one.trips for one in rounds)
        for kind, rounds in samples.items()
    }
    extra = {
        "peer_samples": rates["pass"],
        # What other work on the machine disturbs least: processor time of the server per round trip.
        "cpu_ratio": costs["pass"] / costs["relay"] if costs["relay"] else None,
        # One client, half as many messages through the server.
        "echo_value": statistics.median(rates["echo"]),
        "echo_ratio": pair_ratio(rates["relay"], rates["echo"]),
        "echo_ratio_per_message": pair_ratio([2 * rate for rate in rates["relay"]], rates["echo"]),
    }
    note = (
        f"bare echo {extra['echo_value']:.0f}/s: {extra['echo_ratio']:.2f} of it, per message "
        f"{extra['echo_ratio_per_message']:.2f}; server's processor time {extra['cpu_ratio'] or 0:.2f}"
    )
    name = f"{size // 1000}kB/{program}"
    yield Result(
        f"round trips {name}",
        "round trips/s",
        rates["relay"],
        peer=PEER,
        peer_samples=rates["pass"],
        goal=GOAL,
        extra={**extra, "note": note},
    )
    megabytes = [2 * size * rate / 1e6 for rate in rates["relay"]]
    peer = [2 * size * rate / 1e6 for rate in rates["pass"]]
    yield Result(f"bytes {name}", "MB/s", megabytes, peer=PEER, peer_samples=peer, goal=GOAL)


@contextmanager
def _link(server: Server, workers: int) -> Iterator[BackboneLink]:
    """A real backbone's link that sees so many workers. Raises SideFailed."""
    url = f"ws://127.0.0.1:{server.port}/relay/"
    link = BackboneLink([url], token=BACKBONE_TOKEN, build=BUILD, kernel_class="bench")
    link.start()
    try:
        deadline = time.monotonic() + JOIN_SECONDS
        while len(link.sessions) < workers:
            if time.monotonic() > deadline:
                raise SideFailed("relay", f"{len(link.sessions)} of {workers} workers are there", "")
            time.sleep(0.02)
        yield link
    finally:
        link.stop()


def _ask_all(link: BackboneLink, dispatches: list[Dispatch], patience: float = 30.0) -> list[Outcome]:
    """Everything that came back, once all has."""
    outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
    link.submit_many([(dispatch, outcomes.put) for dispatch in dispatches])
    return [outcomes.get(timeout=patience) for _ in dispatches]


def _dispatch(key: object, rows: int, pairs: int) -> Dispatch:
    indices = np.stack([np.arange(pairs) % rows, np.arange(pairs) % 64], axis=1).astype(np.uint16)
    return Dispatch(key, LAYER, 1, 1, 1, np.zeros((rows, Q8_ROW_BYTES), np.uint8), indices)


def _layer(program: str, server: Server, layers: int) -> Result:
    """From the rows at the link to the last answer there, workers that compute nothing."""
    pairs = TOKENS * TOP // OWNERS
    rows = min(TOKENS, pairs)
    with client("crowd", server.port, OWNERS, WIDTH), _link(server, OWNERS) as link:
        dispatches = [_dispatch(key, rows, pairs) for key in link.sessions]
        samples = []
        for number in range(layers + 5):
            began = time.perf_counter()
            failed = [one for one in _ask_all(link, dispatches) if isinstance(one, Failed)]
            if failed:
                raise SideFailed("relay", f"{failed[0].code}: {failed[0].message}", "")
            if number >= 5:
                samples.append(1000 * (time.perf_counter() - began))
    moved = OWNERS * (rows * Q8_ROW_BYTES + 4 * pairs * WIDTH)
    return Result(
        f"layer, {OWNERS} owners, batch {TOKENS}/{program}",
        "ms",
        samples,
        extra={"bytes": moved, "note": f"{moved / 1e6:.1f} MB per layer there and back; nothing is computed"},
    )


def _sessions(server: Server, idle: int, busy: int) -> list[Result]:
    """Memory of the server per session: at rest, and once `busy` of them answer at the same time."""
    with client("crowd", server.port, 1, WIDTH) as crowd:
        start = server.resident_bytes()
        crowd.ask(more=idle)
        per_idle = (server.resident_bytes() - start) / idle
        crowd.ask(more=busy)
        with _link(server, idle + busy + 1) as link:
            chosen = [_dispatch(key, 2, 2) for key in list(link.sessions)[:busy]]
            before = server.resident_bytes()
            began, answered, rounds = time.perf_counter(), 0, 3
            for _ in range(rounds):
                answered += sum(not isinstance(one, Failed) for one in _ask_all(link, chosen))
            rate = answered / (time.perf_counter() - began)
            per_busy = (server.resident_bytes() - before) / busy
    if answered < rounds * busy:
        raise SideFailed("relay", f"{rounds * busy - answered} of {rounds * busy} requests failed", "")
    return [
        Result(f"sessions, {idle} idle", "kB per session", [per_idle / 1000]),
        Result(f"sessions, {busy} busy of {idle + busy}", "kB more per session", [per_busy / 1000]),
        Result(f"sessions, {busy} busy of {idle + busy}: answers", "round trips/s", [rate]),
    ]
