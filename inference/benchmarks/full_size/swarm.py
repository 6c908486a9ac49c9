"""Arms `swarm` and `churn`: a real relay, W worker processes of one thread each, one backbone; bodies over sockets.

The limits beside a rate: what W cores can compute, from the rate of one kernel on the same batch measured alone in the
same run; and sequences / (layers x round trip), where there is one.
"""

import json
import os
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from inference.benchmarks.full_size.slices import cut
from inference.benchmarks.relay.processes import Client
from inference.benchmarks.report import Result
from inference.benchmarks.rig.backbone import Options
from inference.benchmarks.rig.crowd import slice_path
from inference.benchmarks.rig.placement import even
from inference.benchmarks.rig.site import Group, Site, backbone, site
from inference.gguf_index import ModelIndex, open_index
from inference.verify.local_swarm import Range
from inference.worker.kernels import choose_kernel

RESULTS = {"exact": "F32", "compact": "PARTIAL_F16"}
KILLED_SHARE = 1 / 3
Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class Case:
    """One measurement: results is a key of RESULTS; hot_bytes 0: remote only, else the limits of a real backbone."""

    sequences: int
    round_trip_ms: int = 0
    results: str = "exact"
    hot_bytes: int = 0

    @property
    def name(self) -> str:
        hot = f"/hot={self.hot_bytes / 1e9:.0f}GB" if self.hot_bytes else "/remote-only"
        return f"{self.results}{hot}/rtt={self.round_trip_ms}/seq={self.sequences}"


@dataclass(frozen=True)
class Plan:
    """workers: processes of one thread; threads: of the backbone, over its lanes; trace: folder, empty: none."""

    model: Path
    folder: Path
    workers: int
    cases: tuple[Case, ...]
    steps: int
    rounds: int
    lanes: int
    threads: int
    gpu_layers: int = 0
    trace: str = ""

    @property
    def round_trips(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(case.round_trip_ms for case in self.cases))

    def options(self, case: Case, url: str) -> Options:
        trace = f"{self.trace}/w{self.workers}-{case.name.replace('/', '-')}" if self.trace else ""
        return Options(
            str(self.model), url, self.lanes, max(one.sequences for one in self.cases), self.threads,
            is_remote_only=not case.hot_bytes, result_dtype=RESULTS[case.results], gpu_layers=self.gpu_layers,
            hot_bytes=case.hot_bytes, trace=trace,
        )  # fmt: skip


def group_of(round_trip_ms: int) -> str:
    return f"rtt{round_trip_ms}"


def swarm(plan: Plan, progress: Progress) -> list[Result]:
    """Cases `swarm/W=N/...`. Raises SideFailed."""
    index = open_index(plan.model)
    held = even(index.offered_layers, index.experts_per_layer, plan.workers)
    results: list[Result] = []
    progress(0.0, f"W={plan.workers}: cutting slices")
    with cut(index, held, plan.folder / f"slices-{plan.workers}", os.cpu_count() or 1) as slices:
        rows_per_second = {
            sequences: kernel_rows_per_second(slices, held[0][0], index, sequences)
            for sequences in {case.sequences for case in plan.cases}
        }
        groups = {
            group_of(ms): Group(held, round_trip=ms / 1000 if ms else None, processes=plan.workers)
            for ms in plan.round_trips
        }
        with site(plan.model, slices, groups) as here:
            for number, (options, cases) in enumerate(_by_backbone(plan, here.url)):
                progress(number / len(plan.cases), f"W={plan.workers}: {cases[0].name}")
                with backbone(options, here) as child:
                    results += [
                        _measure(plan, case, here, child, index, rows_per_second[case.sequences]) for case in cases
                    ]
    return results


def _by_backbone(plan: Plan, url: str) -> Iterator[tuple[Options, list[Case]]]:
    """Cases that one backbone process can serve one after another."""
    served: dict[Options, list[Case]] = {}
    for case in plan.cases:
        served.setdefault(plan.options(case, url), []).append(case)
    yield from served.items()


def kernel_rows_per_second(slices: Path, held: Range, index: ModelIndex, sequences: int) -> float:
    """Rows per second of one thread on one slice, for a batch as this worker gets it: no socket, no relay."""
    rows = max(1, round(sequences * index.experts_used * (held.last - held.first) / index.experts_per_layer))
    random = np.random.default_rng(0)
    ids = np.sort(random.integers(held.first, held.last, rows)).astype(np.int32)
    values = random.standard_normal((rows, index.n_embd), np.float32)
    kernel = choose_kernel("ggml", 1).open(slice_path(slices, held))
    try:
        kernel.compute(values, ids)
        taken = []
        for _ in range(5):
            began = time.perf_counter()
            kernel.compute(values, ids)
            taken.append(time.perf_counter() - began)
    finally:
        kernel.close()
    return rows / statistics.median(taken)


def _measure(plan: Plan, case: Case, here: Site, child: Client, index: ModelIndex, rows_per_second: float) -> Result:
    child.ask(prepare=case.sequences)
    child.ask(use=group_of(case.round_trip_ms), workers=plan.workers)
    # Credit, connections and graphs settle; a hot set is planned from what was asked for.
    child.ask(round=2 if case.hot_bytes else 1)
    answers, shares = [], []
    for _ in range(plan.rounds):
        before, began = here.cpu_seconds(), time.perf_counter()
        answers.append(child.ask(round=plan.steps))
        took = time.perf_counter() - began
        after = here.cpu_seconds()
        shares.append({kind: (after[kind] - before[kind]) / took for kind in after})
    samples = [answer["tokens"] / answer["seconds"] for answer in answers]
    layers = len(index.offered_layers)
    limit, what = plan.workers * rows_per_second / (layers * index.experts_used), "W cores computing experts alone"
    if case.round_trip_ms:
        by_round_trips = case.sequences / (layers * case.round_trip_ms / 1000)
        if by_round_trips < limit:
            limit, what = by_round_trips, "sequences / (layers x round trip)"
    return Result(
        f"swarm/W={plan.workers}/{case.name}",
        "tokens/s",
        samples,
        limit=limit,
        limit_what=what,
        extra={
            "of_limit": round(statistics.median(samples) / limit, 3),
            "lanes": plan.lanes,
            "gpu_layers": plan.gpu_layers,
            "cores_busy": {kind: round(statistics.mean(one[kind] for one in shares), 2) for kind in shares[0]},
            **spent(answers, layers, plan.lanes),
            "memory_bytes": memory(here),
            "note": _note(answers, layers, plan.lanes, statistics.median(samples) / limit),
        },
    )


def spent(answers: list[dict[str, Any]], layers: int, lanes: int) -> dict[str, Any]:
    """Where rows were computed, bytes per token and layer, and milliseconds per layer of one lane's step by part.

    rest: dense path, router, sending, scattering and llama.cpp's own work between two MoE layers.
    """
    tokens = sum(answer["tokens"] for answer in answers)
    calls = sum(answer["layers"]["calls"] for answer in answers)
    local, wait = (sum(answer["layers"][name] for answer in answers) for name in ("local_seconds", "wait_seconds"))
    whole = sum(answer["seconds"] for answer in answers) * lanes
    moments: dict[str, float] = {}
    places: dict[str, int] = {}
    for answer in answers:
        for name, count in answer["moments"].items():
            moments[name] = moments.get(name, 0) + count
        for name, count in answer["places"].items():
            places[name] = places.get(name, 0) + count
    per_call = 1000 / max(1.0, calls)
    return {
        "places": places,
        "bytes_per_token_and_layer": {
            name: round(moments.get(f"{name}_bytes", 0) / max(1, tokens) / layers) for name in ("sent", "received")
        },
        "ms_per_layer": {
            "all": round(whole * per_call, 3),
            "local_experts": round(local * per_call, 3),
            "wait": round(wait * per_call, 3),
            "rest": round((whole - local - wait) * per_call, 3),
        },
    }


def _note(answers: list[dict[str, Any]], layers: int, lanes: int, of_limit: float) -> str:
    parts = spent(answers, layers, lanes)
    times, size = parts["ms_per_layer"], parts["bytes_per_token_and_layer"]
    return (
        f"{of_limit:.2f} of its limit; ms per layer {times['all']:.1f} = wait {times['wait']:.1f} + local "
        f"{times['local_experts']:.1f} + rest {times['rest']:.1f}; bytes per token and layer {size['sent']} out, "
        f"{size['received']} back"
    )


def memory(here: Site) -> dict[str, dict[str, int]]:
    """By kind of process: what all of them hold for themselves alone, and the largest with what is mapped."""
    found = {}
    for kind, processes in here.processes.items():
        if processes:
            own = [process.memory_full_info() for process in processes]
            found[kind] = {"unique_sum": sum(one.uss for one in own), "resident_most": max(one.rss for one in own)}
    return found


def churn(plan: Plan, progress: Progress) -> list[Result]:
    """Case `churn/W=N/...`: step by step, a third of the workers is killed (SIGKILL) in the middle of one of them.

    Every sequence must get every token. Raises SideFailed.
    """
    index = open_index(plan.model)
    held = even(index.offered_layers, index.experts_per_layer, plan.workers)
    (case,) = plan.cases
    progress(0.0, f"W={plan.workers}: cutting slices")
    with cut(index, held, plan.folder / "slices-churn", os.cpu_count() or 1) as slices:
        groups = {group_of(0): Group(held, processes=plan.workers)}
        with site(plan.model, slices, groups) as here:
            options = replace(plan.options(case, here.url), is_remote_only=False)
            with backbone(options, here) as child:
                child.ask(prepare=case.sequences)
                child.ask(use=group_of(0), workers=plan.workers)
                child.ask(round=2)
                return [_killed(plan, case, here, child)]


def _killed(plan: Plan, case: Case, here: Site, child: Client) -> Result:
    victims = here.processes["workers"][: max(1, int(plan.workers * KILLED_SHARE))]
    before = [child.ask(round=1) for _ in range(plan.steps)]
    moment = statistics.median(answer["seconds"] for answer in before) * 0.4
    killer = threading.Timer(moment, _kill, [victims])
    killer.start()
    during = child.ask(round=1)
    killer.join()
    here.processes["workers"] = [one for one in here.processes["workers"] if one not in victims]
    after = [child.ask(round=1) for _ in range(plan.steps)]
    everything = [*before, during, *after]
    short = [answer["tokens"] for answer in everything if answer["tokens"] != case.sequences]
    places = {"before": before, "during": [during], "after": after}
    return Result(
        f"churn/W={plan.workers}/{case.name}",
        "tokens/s",
        [answer["tokens"] / answer["seconds"] for answer in after],
        peer="before the kill",
        peer_samples=[answer["tokens"] / answer["seconds"] for answer in before],
        extra={
            "killed": len(victims),
            "step_of_the_kill_seconds": during["seconds"],
            "steps_with_missing_tokens": len(short),
            "failures": during["failures"],
            "places": {
                name: {place: sum(one["places"].get(place, 0) for one in answers) for place in _places(answers)}
                for name, answers in places.items()
            },
            "note": f"{len(victims)} of {plan.workers} killed; that step took {during['seconds']:.2f} s; "
            f"steps with missing tokens: {len(short)}; {json.dumps(during['failures'])}",
        },
    )


def _places(answers: list[dict[str, Any]]) -> list[str]:
    return sorted({place for answer in answers for place in answer["places"]})


def _kill(victims: list[psutil.Process]) -> None:
    for process in victims:
        process.send_signal(signal.SIGKILL)
