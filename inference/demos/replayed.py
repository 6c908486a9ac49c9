"""Compares what a backbone recorded with plain llama.cpp, for the demos."""

from collections.abc import Sequence
from pathlib import Path

from inference.errors import InferenceError
from inference.verify.runner import run_trace


class DemoFailed(InferenceError):
    """A demo could not show its milestone."""

    code = "demo_failed"


def compare(traces: Sequence[Path]) -> tuple[int, float]:
    """(positions, max |difference|) over all traces; raises DemoFailed when a replay fails or differs."""
    results = [run_trace(trace) for trace in traces]
    failed = [f"{result.case}: {result.extra.get('error', 'differs')}" for result in results if not result.ok]
    if failed or not results:
        raise DemoFailed("; ".join(failed) or "nothing was recorded")
    return sum(result.positions for result in results), max(result.max_abs_diff or 0.0 for result in results)
