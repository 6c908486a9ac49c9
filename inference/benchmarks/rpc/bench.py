"""The cases of `bench rpc`: same model, as many worker processes, the same slow lines, rounds that alternate.

Arm `experts`: RPC servers hold the expert tensors and nothing else, a layer's all on one server, because a tensor is
what RPC can place; the same experts are remote here, half of each layer's with either worker. Both sides need one round
trip per layer, so S sequences give at most S / (layers x round trip). Its experts have 2/3 of the 122B's size (3.5 MB):
computing them takes time. `experts-compact`: our workers answer with sums in float16 (DISPATCH_RESULTS=sums-f16), which
RPC has no way to ask for. `small-experts`: the demo model, whose experts (0.1 MB) take no time, so that only messages
and round trips count. Arm `layers`: llama.cpp's usual split, whole layers with their attention, one round trip per
server; no device that holds 40 MB can take part in that. Then a worker process is killed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from inference.benchmarks.overhead import SideFailed
from inference.benchmarks.progress import Progress
from inference.benchmarks.relay.processes import Client
from inference.benchmarks.report import Result
from inference.benchmarks.rig.backbone import Options
from inference.benchmarks.rig.placement import even
from inference.benchmarks.rig.site import Group, Site, backbone, site
from inference.benchmarks.rpc.peer import Arm
from inference.benchmarks.rpc.servers import peer, programs
from inference.gguf_index import open_index
from inference.synthetic import DEMO_MODEL, SMALL, shape122b, small_qwen35moe

PEER = "llama.cpp with its RPC backend"
GOAL, GOAL_FROM = 1.0, 8
GROUP = "workers"


@dataclass(frozen=True)
class Plan:
    """lanes: of our side, by sequences; steps: tokens of every sequence in a round; kill_steps: in the last round."""

    lanes: dict[int, int]
    workers: int = 2
    round_trip: float = 0.05
    steps: int = 5
    pairs: int = 3
    kill_steps: int = 16
    kill_after: float = 1.5


# Lanes overlap computing with waiting. With 8 sequences four of them fill the wait; with 64 a batch takes about as long
# as the wait, and more than two lanes would only cut it smaller.
FULL = Plan({1: 1, 8: 4, 64: 2})
QUICK = Plan({2: 1}, round_trip=0.01, steps=2, pairs=1, kill_steps=30, kill_after=0.5)
LARGE = replace(SMALL, n_embd=2048, n_ff=1024, experts=32, experts_used=8)
LARGE_LAYERS = 4


def rpc(cache: Path, *, quick: bool, threads: int, progress: Progress) -> list[Result]:
    """Raises NotBuilt with what to run, SideFailed."""
    plan = QUICK if quick else FULL
    programs(cache)
    progress(0.0, "writing a model")
    large = small_qwen35moe(cache / "small-qwen35moe.gguf") if quick else shape122b(
        cache / "rpc-large-experts.gguf", LARGE_LAYERS, shape=LARGE
    )  # fmt: skip
    arms: tuple[tuple[str, Arm, Path, str], ...] = (
        ("experts", "experts", large, "F32"),
        ("experts-compact", "experts", large, "PARTIAL_F16"),
        ("small-experts", "experts", DEMO_MODEL, "F32"),
        ("layers", "layers", DEMO_MODEL, "F32"),
    )
    results: list[Result] = []
    for number, (name, arm, model, result_dtype) in enumerate(arms):
        index = open_index(model)
        held = even(index.offered_layers, index.experts_per_layer, plan.workers)
        groups = {GROUP: Group(held, round_trip=plan.round_trip, processes=plan.workers)}
        with site(model, cache / f"rig-{model.stem}", groups) as here:
            tell = _part_of(progress, number, len(arms))
            layers = len(index.offered_layers)
            case = Comparison(cache, plan, here, threads, name, arm, model, result_dtype, layers, tell)
            results += case.results()
            if name == arms[-1][0]:
                results += _killed(cache, plan, here, threads)
    return results


def _part_of(progress: Progress, number: int, count: int) -> Progress:
    return lambda share, text: progress((number + share) / count, text)


@dataclass
class Comparison:
    """One arm."""

    cache: Path
    plan: Plan
    here: Site
    threads: int
    name: str
    arm: Arm
    model: Path
    result_dtype: str
    layers: int
    progress: Progress

    def results(self) -> Iterator[Result]:
        plan, most = self.plan, max(self.plan.lanes)
        with ExitStack() as stack:
            theirs, _ = stack.enter_context(
                peer(self.cache, self.model, self.arm, servers=plan.workers, sequences=most, round_trip=plan.round_trip)
            )
            for number, (sequences, lanes) in enumerate(plan.lanes.items()):
                self.progress(number / len(plan.lanes), f"{self.name}, {sequences} sequences")
                options = Options(
                    str(self.model), self.here.url, lanes, sequences, self.threads, result_dtype=self.result_dtype
                )
                with backbone(options, self.here) as ours:
                    yield self._case(ours, theirs, sequences, lanes)

    def _case(self, ours: Client, theirs: Client, sequences: int, lanes: int) -> Result:
        ours.ask(prepare=sequences)
        ours.ask(use=GROUP, workers=self.plan.workers)
        theirs.ask(prepare=sequences)
        rates: dict[Client, list[float]] = {ours: [], theirs: []}
        for pair in range(-1, self.plan.pairs):  # the first pair warms up
            for side in (ours, theirs) if pair % 2 else (theirs, ours):
                answer = side.ask(round=1 if pair < 0 else self.plan.steps)
                if pair >= 0:
                    rates[side].append(answer["tokens"] / answer["seconds"])
        trips = self.plan.round_trip
        bounds = {"ours": sequences / (self.layers * trips), "layers": sequences / (self.plan.workers * trips)}
        peer_bound = bounds["layers"] if self.arm == "layers" else bounds["ours"]
        return Result(
            f"{self.name}/seq{sequences}",
            "tokens/s",
            rates[ours],
            peer=PEER,
            peer_samples=rates[theirs],
            limit=bounds["ours"],
            limit_what="sequences / (layers x round trip)",
            goal=GOAL if self.model != DEMO_MODEL and sequences >= GOAL_FROM else None,
            extra={
                "peer_samples": rates[theirs],
                "peer_limit": peer_bound,
                "lanes": lanes,
                "round_trip_ms": 1000 * trips,
                "workers": self.plan.workers,
                "note": f"bounds by round trips: ours {bounds['ours']:.4g}, RPC {peer_bound:.4g} tokens/s",
            },
        )


def _killed(cache: Path, plan: Plan, here: Site, threads: int) -> Iterator[Result]:
    """A worker process gets SIGKILL while tokens are written: what each side gives of that round."""
    sequences = max(plan.lanes)
    with peer(cache, DEMO_MODEL, "experts", servers=plan.workers, sequences=sequences, round_trip=plan.round_trip) as (
        theirs,
        servers,
    ):
        theirs.ask(prepare=sequences)
        tokens, seconds, died = _round_with_kill(theirs, servers[0], plan)
    yield Result(
        f"killed/rpc/seq{sequences}",
        "tokens/s",
        [tokens / seconds if seconds else 0.0],
        extra={"died": died, "note": died or "went on"},
    )
    options = Options(str(DEMO_MODEL), here.url, plan.lanes[sequences], sequences, threads)
    with backbone(options, here) as ours:
        ours.ask(prepare=sequences)
        ours.ask(use=GROUP, workers=plan.workers)
        tokens, seconds, died = _round_with_kill(ours, here.processes["workers"][0], plan)
    yield Result(
        f"killed/ours/seq{sequences}",
        "tokens/s",
        [tokens / seconds if seconds else 0.0],
        extra={"died": died, "note": died or "every token came; what the dead worker held was computed here"},
    )


def _round_with_kill(side: Client, victim: psutil.Process, plan: Plan) -> tuple[float, float, str]:
    """(tokens, seconds, how the side died or an empty text)."""
    killer = threading.Timer(plan.kill_after, victim.kill)
    killer.start()
    try:
        answer = side.ask(round=plan.kill_steps)
        return answer["tokens"], answer["seconds"], ""
    except SideFailed as failure:
        return 0.0, 0.0, f"the whole process died with its worker: {failure.reason}"
    finally:
        killer.join()
