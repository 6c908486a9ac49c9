"""The cases of `bench ring`: 1, 2 and 3 stages on this host, with and without slow lines before each of them.

Peer: llama.cpp's RPC backend with whole layers on as many servers, one thread each, behind lines of the same kind;
rounds alternate. Ours keeps several micro-batches (lanes) in flight, RPC has one batch. A step of ours passes S + 1
halves of a round trip (the stages are a ring), one of RPC's at least S whole ones (its client asks each server).

Limit: micro-batches of b rows, L of them, S stages that take t1 .. tS seconds for b rows (measured in the same process
with one micro-batch alone in the ring), lines D: rows/s <= b x min(L / (sum t + D), 1 / max t, cores / sum t).

Then one sequence alone: first token and each next one, beside plain llama.cpp in one process, and beside RPC.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from inference.benchmarks.progress import Progress
from inference.benchmarks.relay.processes import Client, obedient
from inference.benchmarks.report import Result
from inference.benchmarks.rig.site import cores, slow_line
from inference.benchmarks.ring.coordinator import Options
from inference.benchmarks.rpc.servers import peer, programs
from inference.gguf_index import open_index
from inference.synthetic import SMALL, full122b
from inference.verify.stage_processes import StageProcesses, cut_stages

PEER = "llama.cpp with its RPC backend, whole layers"
PLAIN = "plain llama.cpp, one process of as many threads"
LAYERS, MOST_SEQUENCES = 12, 32
# Experts of 0.9 MB, so that computing takes time and the whole model fits twice into the memory of a small host.
SHAPE = replace(SMALL, n_embd=1024, n_ff=512)


@dataclass(frozen=True)
class Plan:
    """round_trips: seconds; lanes: micro-batches per stage; pairs: rounds of each side per case."""

    stages: tuple[int, ...] = (1, 2, 3)
    round_trips: tuple[float, ...] = (0.0, 0.02)
    batches: tuple[int, ...] = (1, 8, 32)
    steps: int = 8
    pairs: int = 4
    firsts: int = 4


FULL = Plan()
QUICK = Plan(stages=(2,), round_trips=(0.005,), batches=(2,), steps=3, pairs=1, firsts=1)


def ring(cache: Path, *, quick: bool, threads: int, progress: Progress) -> list[Result]:
    """Raises NotBuilt with what to run, SideFailed, StageNotStarted. threads: cores of each stage here (1 of a bench
    that starts three of them on two cores would only measure their fight), so it is not used."""
    plan = QUICK if quick else FULL
    programs(cache)
    progress(0.0, "writing a model")
    shape = SMALL if quick else SHAPE
    model = full122b(cache / f"ring-{shape.n_embd}-{LAYERS}.gguf", layers=LAYERS, shape=shape)
    results: list[Result] = []
    cases = [(stages, trip) for stages in plan.stages for trip in plan.round_trips]
    for number, (stages, trip) in enumerate(cases):
        progress(number / len(cases), f"{stages} stages, {1000 * trip:.0f} ms")
        results += Comparison(cache, model, plan, stages, trip).results()
    return results


def lanes_for(batch: int, stages: int, round_trip: float) -> int:
    """Micro-batches: one per stage keeps every stage busy; behind slow lines another one per line does."""
    return min(batch, stages if round_trip == 0.0 else 2 * stages)


def limit_of(rows: float, lanes: int, stage_seconds: list[float], line_seconds: float) -> float:
    """Rows per second at most; see the head of this module."""
    around, slowest = sum(stage_seconds), max(stage_seconds)
    return rows * min(lanes / (around + line_seconds), 1 / slowest, cores() / around)


@dataclass
class Comparison:
    """One number of stages behind one kind of line."""

    cache: Path
    model: Path
    plan: Plan
    stages: int
    round_trip: float

    def results(self) -> Iterator[Result]:
        index = open_index(self.model)
        folder = self.cache / f"ring-stages-{self.model.stem}"
        with ExitStack() as stack:
            paths = cut_stages(index, folder, self.stages)
            processes = stack.enter_context(StageProcesses(paths, folder))
            addresses = [stack.enter_context(self._line(stage.port)) for stage in processes.stages]
            theirs, _ = stack.enter_context(
                peer(
                    self.cache, self.model, "layers", servers=self.stages, sequences=MOST_SEQUENCES,
                    round_trip=self.round_trip,
                )
            )  # fmt: skip
            secret = processes.secret.decode()
            for batch in self.plan.batches:
                lanes = lanes_for(batch, self.stages, self.round_trip)
                options = Options(str(self.model), tuple(addresses), secret, lanes, batch)
                with coordinator(options) as ours:
                    yield self._throughput(ours, theirs, batch, lanes)
            with coordinator(Options(str(self.model), tuple(addresses), secret, 1, 1)) as ours, self._plain() as plain:
                yield from self._latency(ours, theirs, plain)

    @contextmanager
    def _line(self, port: int) -> Iterator[str]:
        if self.round_trip == 0.0:
            yield f"127.0.0.1:{port}"
            return
        with slow_line(port, self.round_trip) as (line, _):
            yield f"127.0.0.1:{line}"

    @contextmanager
    def _plain(self) -> Iterator[Client]:
        arguments = ["--side", "plain", "--model", self.model, "--sequences", 1, "--sequence-tokens", 256]
        with obedient("inference.benchmarks.side", *arguments, "--threads", 1) as child:
            yield child

    @property
    def _name(self) -> str:
        return f"{self.stages} stages, {1000 * self.round_trip:.0f} ms"

    @property
    def _line_seconds(self) -> float:
        return (self.stages + 1) * self.round_trip / 2

    def _throughput(self, ours: Client, theirs: Client, batch: int, lanes: int) -> Result:
        for side in (ours, theirs):
            side.ask(prepare=batch)
            side.ask(round=2)
        rates: dict[Client, list[float]] = {ours: [], theirs: []}
        limits: list[float] = []
        busy: list[float] = []
        for pair in range(self.plan.pairs):
            # Beside every round, so that what else the machine does is in both.
            alone = ours.ask(round=max(2, self.plan.steps // 2), lanes=1)
            limits.append(limit_of(batch / lanes, lanes, alone["stage_seconds"], self._line_seconds))
            for side in (ours, theirs) if pair % 2 else (theirs, ours):
                answer = side.ask(round=self.plan.steps)
                rates[side].append(answer["tokens"] / answer["seconds"])
                busy = answer["stage_seconds"] if side is ours else busy
        limit = statistics.median(limits)
        efficiency = statistics.median(rate / most for rate, most in zip(rates[ours], limits, strict=True))
        return Result(
            f"{self._name}, batch {batch}",
            "tokens/s",
            rates[ours],
            peer=PEER,
            peer_samples=rates[theirs],
            limit=limit,
            limit_what="rows x min(micro-batches / (stages' times + lines), 1 / slowest stage, cores / stages' times)",
            extra={
                "peer_samples": rates[theirs],
                "efficiency": efficiency,
                "lanes": lanes,
                "round_trip_ms": 1000 * self.round_trip,
                "stage_seconds_alone": alone["stage_seconds"],
                "step_seconds_alone": alone["step_seconds"],
                "stage_seconds": busy,
                "note": f"{efficiency:.2f} of the bound {limit:.4g} tokens/s, {lanes} micro-batches",
            },
        )

    def _latency(self, ours: Client, theirs: Client, plain: Client) -> Iterator[Result]:
        """Seconds, so less is better: ratios above 1 say how many times longer ours takes."""
        firsts: dict[Client, list[float]] = {ours: [], theirs: [], plain: []}
        nexts: dict[Client, list[float]] = {ours: [], theirs: [], plain: []}
        ours.ask(first=1)  # opens the ring
        for _ in range(self.plan.firsts):
            for side in (plain, ours, theirs):
                began = time.perf_counter()
                if side is ours:
                    firsts[side].append(side.ask(first=1)["seconds"])
                else:
                    side.ask(prepare=1)
                    firsts[side].append(time.perf_counter() - began)
                answer = side.ask(round=self.plan.steps)
                nexts[side].append(answer["seconds"] / answer["tokens"])
        for what, found in (("first token", firsts), ("next token", nexts)):
            rpc = statistics.median(a / b for a, b in zip(found[ours], found[theirs], strict=True))
            yield Result(
                f"{self._name}, {what}",
                "s",
                found[ours],
                peer=PLAIN,
                peer_samples=found[plain],
                limit=self._line_seconds,
                limit_what="the lines of one way around the ring",
                extra={
                    "rpc_samples": found[theirs],
                    "rpc_ratio": rpc,
                    "round_trip_ms": 1000 * self.round_trip,
                    "note": f"{rpc:.2f} times RPC's {1000 * statistics.median(found[theirs]):.1f} ms; less is better",
                },
            )


@contextmanager
def coordinator(options: Options) -> Iterator[Client]:
    """Raises SideFailed."""
    with obedient("inference.benchmarks.ring.coordinator", options.to_json()) as child:
        yield child
