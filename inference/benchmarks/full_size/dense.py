"""Arm `dense`: plain llama.cpp and our backbone, every expert local, rounds alternating; on the CPU or with the dense
path on a GPU."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from inference.benchmarks.overhead import Plan, run_plan
from inference.benchmarks.report import Result


def dense(
    model: Path,
    batches: Sequence[int],
    *,
    pairs: int,
    threads: int,
    gpu_layers: int,
    progress: Callable[[float, str], None],
) -> list[Result]:
    """Cases `m0/cpu/batch=N`, or `m0/gpu/batch=N` where gpu_layers is not 0. Raises SideFailed."""
    name = "m0/gpu" if gpu_layers else "m0/cpu"
    plan = Plan(name, model, batches, pairs, round_seconds=1.0, with_defaults=False, gpu_layers=gpu_layers)
    return [replace(result, case=result.case.replace(" ", "/")) for result in run_plan(plan, threads, progress)]
