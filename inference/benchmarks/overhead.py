"""`manage.py bench overhead`: what the expert backend costs when every expert is computed locally.

Ours and plain llama.cpp generate greedily, batch by batch, each in a process of its own that keeps its model; rounds
alternate (ours, plain, plain with its defaults, ours ...) so that a change of the machine's load hits all sides. The
peer is plain llama.cpp with `use_extra_bufts=False`: the same kernels. The ratio to plain with its defaults (repacked
weights), where that does not crash, stands beside it: the price of exactness.
"""

from __future__ import annotations

import json
import math
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from inference.benchmarks.progress import Progress
from inference.benchmarks.report import Result, pair_ratio
from inference.synthetic import DEMO_MODEL, shape122b, small_qwen35moe

ROOT = Path(__file__).resolve().parents[2]
BATCHES = (1, 8, 64)
GOAL = 0.97
GOAL_BATCHES = (8, 64)
PEER = "llama.cpp, use_extra_bufts=False"
SEQUENCE_TOKENS = 1024


class SideFailed(RuntimeError):
    """A child process died or answered nonsense; `reason` says how, e.g. "crashed (SIGSEGV)"."""

    def __init__(self, side: str, reason: str, output: str) -> None:
        super().__init__(f"{side}: {reason}\n{output}".strip())
        self.reason = reason


class Round(NamedTuple):
    """Tokens per second of the clock and per second of processor time (busy waiting of threads included)."""

    per_second: float
    per_cpu_second: float


@dataclass
class Child:
    """A side's process. Leaving the context ends it."""

    side: str
    model: Path
    sequences: int
    threads: int
    gpu_layers: int = 0
    process: subprocess.Popen[str] = field(init=False)

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "inference.benchmarks.side", "--side", self.side, "--model", str(self.model)]
        command += ["--sequences", str(self.sequences), "--sequence-tokens", str(SEQUENCE_TOKENS)]
        command += ["--threads", str(self.threads), "--gpu-layers", str(self.gpu_layers)]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *_: TracebackType | type[BaseException] | BaseException | None) -> None:
        self.process.kill()
        self.process.communicate()

    def answer(self) -> dict[str, Any]:
        """The next answer line. Raises SideFailed when the process died instead."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            _, errors = self.process.communicate()
            code = self.process.returncode
            reason = f"crashed ({signal.Signals(-code).name})" if code < 0 else f"ended with status {code}"
            raise SideFailed(self.side, reason, errors[-2000:])
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, **command: int) -> dict[str, Any]:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it died: reading its answer says how
            self.process.stdin.write(json.dumps(command) + "\n")
            self.process.stdin.flush()
        return self.answer()

    def round(self, steps: int) -> Round:
        """Raises SideFailed."""
        answer = self.ask(round=steps)
        return Round(answer["tokens"] / answer["seconds"], answer["tokens"] / answer["cpu_seconds"])


@dataclass(frozen=True)
class Plan:
    """pairs: repetitions of a round per side; round_seconds: about how long a round takes; with_defaults: whether
    plain llama.cpp with its defaults runs too, which copies the weights; gpu_layers: dense path on a GPU.

    Many short rounds: what else runs on the machine then hits single pairs, and the median leaves those out.
    """

    name: str
    model: Path
    batches: Sequence[int]
    pairs: int
    round_seconds: float
    goal_batches: Sequence[int] = ()
    with_defaults: bool = True
    gpu_layers: int = 0


def overhead(cache: Path, *, quick: bool, threads: int, progress: Progress) -> list[Result]:
    """Runs all cases; `cache` holds the synthetic file (2.8 GB) for the next run. Raises SideFailed."""
    if quick:
        # A smoke run: the smallest file that has every kind of layer, and the demo model.
        small = small_qwen35moe(cache / "small-qwen35moe.gguf")
        plans = [Plan(name, model, (1, 4), 2, 0.05) for name, model in (("small", small), ("demo", DEMO_MODEL))]
    else:
        progress(0.0, "writing the synthetic model (once)")
        large = shape122b(cache / "shape122b-2-layers.gguf")
        plans = [
            Plan("shape122b", large, BATCHES, 25, 0.4, GOAL_BATCHES),
            Plan("demo", DEMO_MODEL, BATCHES, 25, 0.2),
        ]
    results: list[Result] = []
    for number, plan in enumerate(plans):
        results += run_plan(plan, threads, _part_of(progress, number, len(plans)))
    return results


def _part_of(progress: Progress, number: int, count: int) -> Progress:
    """The share done of part `number` of `count`, told as a share of the whole."""
    return lambda share, text: progress((number + share) / count, text)


def run_plan(plan: Plan, threads: int, progress: Progress) -> Iterator[Result]:
    """All batches of one model, the three sides alternating; each as soon as it is measured."""
    sequences = max(plan.batches)
    names = ("ours", "plain", "plain-defaults") if plan.with_defaults else ("ours", "plain")
    with ExitStack() as stack:
        children = [stack.enter_context(Child(name, plan.model, sequences, threads, plan.gpu_layers)) for name in names]
        ours, plain, *rest = children
        for child in (ours, plain):
            child.answer()
        defaults = rest[0] if rest else None
        crash = "not run" if defaults is None else _crash_of(defaults.answer)
        for number, batch in enumerate(plan.batches):
            tell = _part_of(progress, number, len(plan.batches))
            samples, crash = _run_case(plan, batch, [ours, plain], defaults, crash, tell)
            yield _result(plan, batch, samples, crash)


def _run_case(
    plan: Plan, batch: int, sides: list[Child], defaults: Child | None, crash: str | None, tell: Progress
) -> tuple[dict[str, list[Round]], str | None]:
    """Every round, by side; and how the defaults crashed, if they did."""
    samples: dict[str, list[Round]] = {"ours": [], "plain": [], "plain-defaults": []}
    case = f"{plan.name} batch={batch}"
    tell(0.0, case)
    for child in sides:
        child.ask(prepare=batch)
    if defaults is not None:
        crash = crash or _crash_of(partial(defaults.ask, prepare=batch))
    warm = [child.ask(round=2)["seconds"] / 2 for child in sides]
    steps = max(2, min(200, math.ceil(plan.round_seconds / max(warm))))
    # The sequences must not reach the end of their context: prompt, ramp, warm-up and rounds.
    steps = min(steps, (SEQUENCE_TOKENS - 2 * batch - 64) // plan.pairs)
    for pair in range(plan.pairs):
        # Every other pair the order turns, so that neither side always comes first.
        for child in sides if pair % 2 == 0 else reversed(sides):
            samples[child.side].append(child.round(steps))
        if crash is None and defaults is not None:
            crash = _crash_of(partial(_append_round, samples[defaults.side], defaults, steps))
        tell((pair + 1) / plan.pairs, case)
    return samples, crash


def _append_round(samples: list[Round], child: Child, steps: int) -> None:
    samples.append(child.round(steps))


def _crash_of(action: Callable[[], object]) -> str | None:
    """How the side died during the action, or None."""
    try:
        action()
    except SideFailed as failure:
        return failure.reason
    return None


def _result(plan: Plan, batch: int, rounds: dict[str, list[Round]], crash: str | None) -> Result:
    samples = {side: [one.per_second for one in every] for side, every in rounds.items()}
    ours, defaults = samples["ours"], samples["plain-defaults"]
    ratio = pair_ratio(ours, defaults) if crash is None else None
    said = f"to llama.cpp with its defaults: {crash}" if ratio is None else f"ratio to llama.cpp's defaults {ratio:.3f}"
    extra = {
        "peer_samples": samples["plain"],
        "cpu_ratio": pair_ratio(*([one.per_cpu_second for one in rounds[side]] for side in ("ours", "plain"))),
        "defaults_value": statistics.median(defaults) if crash is None else None,
        "defaults_ratio": ratio,
        "defaults_crash": crash,
        "note": said,
    }
    return Result(
        f"{plan.name} batch={batch}",
        "tokens/s",
        ours,
        peer=PEER,
        peer_samples=samples["plain"],
        goal=GOAL if batch in plan.goal_batches else None,
        extra=extra,
    )
