"""Runs cases in child processes and judges them: recorded run, replay through plain llama.cpp, reference logits.

Every case ends as a `CaseResult`, whatever its processes do: one that dies by a signal is a failed case with that
signal's name, never a traceback.
"""

from __future__ import annotations

import json
import math
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from inference.errors import InferenceError
from inference.verify.cases import FULL, MIN_POSITIONS, MODELS, QUICK, QUICK_POSITIONS, Case

ROOT = Path(__file__).resolve().parents[2]
CASE_SECONDS = 900.0
COMPACT = ("sums-f32", "sums-f16")
COMPACT_POSITIONS = 512

Kind = Literal["exact", "reference", "compact", "browser"]


class ChildFailed(RuntimeError):
    """A child process died, took too long or reported an error."""


@dataclass(frozen=True)
class CaseResult:
    """ok: the case showed what its kind must show. Numbers that a kind does not have are None."""

    case: str
    kind: Kind
    ok: bool
    positions: int = 0
    max_abs_diff: float | None = None
    kl_max: float | None = None
    top1_agreement: float | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "case": self.case,
            "kind": self.kind,
            "ok": self.ok,
            "positions": self.positions,
            "max_abs_diff": self.max_abs_diff,
            "kl_max": self.kl_max,
            "top1_agreement": self.top1_agreement,
            **self.extra,
        }


def verify(
    cache: Path, *, quick: bool, progress: Callable[[float, str], None] = lambda share, text: None
) -> Iterator[CaseResult]:
    """Runs the matrix (or its short form), case by case. cache: folder for the synthetic models, kept."""
    cases = QUICK if quick else FULL
    progress(0.0, "reference logits")
    yield run_reference()
    for result in COMPACT[1:] if quick else COMPACT:
        progress(0.0, f"compact {result}")
        yield run_compact(result, cache, QUICK_POSITIONS if quick else COMPACT_POSITIONS)
    for number, case in enumerate(cases, start=1):
        progress(number / (len(cases) + 1), case.name)
        yield run_case(case, cache, QUICK_POSITIONS if quick else MIN_POSITIONS)


def run_case(case: Case, cache: Path, positions: int) -> CaseResult:
    """Records the case in one process, replays it in another."""
    try:
        run, traces = run_recorded(case, cache)
    except ChildFailed as failure:
        return CaseResult(case.name, "exact", False, extra={"error": str(failure)})
    return _judge(case, run, traces, positions)


def run_recorded(case: Case, cache: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What the recording process and the replaying one tell; the traces are removed. Raises ChildFailed."""
    cache.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="case-", dir=cache))
    try:
        model = MODELS[case.model](cache)
        run = _child(
            f"inference.verify.{'ring_run' if case.stages else 'recorded_run'}",
            ["--case", json.dumps(case.to_json()), "--model", str(model), "--out", str(folder)],
        )
        traces: list[dict[str, Any]] = _child("inference.verify.replay", run["traces"])["traces"]
    except (InferenceError, OSError) as failure:
        raise ChildFailed(str(failure)) from failure
    finally:
        shutil.rmtree(folder)
    return run, traces


def run_trace(path: Path) -> CaseResult:
    """Replays a trace that a running backbone wrote."""
    try:
        traces = _child("inference.verify.replay", [str(path)])["traces"]
    except ChildFailed as failure:
        return CaseResult(f"trace {path.name}", "exact", False, extra={"error": str(failure)})
    return _exact(f"trace {path.name}", traces, {}, problems=[], positions=1)


def run_reference() -> CaseResult:
    """The stored logits, in a process of its own."""
    try:
        body = _child("inference.verify.reference", [])
    except ChildFailed as failure:
        return CaseResult("reference logits", "reference", False, extra={"error": str(failure)})
    return CaseResult("reference logits", "reference", **body)


def run_compact(result: str, cache: Path, positions: int) -> CaseResult:
    """Partial sums against exact results, in a process of its own."""
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="compact-", dir=cache) as folder:
        try:
            arguments = ["--result", result, "--out", folder, "--positions", str(positions)]
            body = _child("inference.verify.compact", arguments)
        except ChildFailed as failure:
            return CaseResult(f"compact {result}", "compact", False, extra={"error": str(failure)})
    return CaseResult(f"compact {result}", "compact", **body)


def _judge(case: Case, run: dict[str, Any], traces: Sequence[dict[str, Any]], positions: int) -> CaseResult:
    """A case must be exact, long enough, and must have computed where it was meant to."""
    problems = []
    low, high = case.remote
    share = run["remote_share"]
    if not low <= share <= high:
        problems.append(f"workers computed {share:.1%} of the expert rows, expected {low:.0%} to {high:.0%}")
    if "error" in run["finishes"]:
        problems.append(f"{run['finishes']['error']} requests failed")
    if case.kill and not run["failures"]:
        problems.append("nobody noticed that a process was killed")
    if case.kill and case.stages and not run["replayed_tokens"]:
        problems.append("no token was read again after a stage was replaced")
    if case.hot and not run["places"].get("local_hot"):
        problems.append("nothing was computed here because it is hot")
    if case.kept and not run["reused_tokens"]:
        problems.append("no prompt went on from a kept state")
    extra = {
        key: run[key] for key in ("remote_share", "places", "failures", "finishes", "reused_tokens", "replayed_tokens")
    }
    return _exact(case.name, traces, extra, problems, positions)


def _exact(
    name: str, traces: Sequence[dict[str, Any]], extra: dict[str, Any], problems: list[str], positions: int
) -> CaseResult:
    compared = sum(trace["positions"] for trace in traces)
    worst = max(trace["max_abs_diff"] for trace in traces)
    if compared < positions:
        problems.append(f"only {compared} positions, at least {positions} are wanted")
    if not all(trace["equal_bits"] for trace in traces):
        problems.append("the logits differ from plain llama.cpp's")
    extra = {"largest_batch": max(trace["largest_batch"] for trace in traces), **extra}
    if problems:
        extra["error"] = "; ".join(problems)
    # JSON has no infinity: a difference that is no number is reported as null and told in `error`.
    finite = worst if math.isfinite(worst) else None
    return CaseResult(name, "exact", not problems, compared, finite, extra=extra)


def _child(module: str, arguments: Sequence[str]) -> dict[str, Any]:
    """Runs a module and returns the JSON of its last line. Raises ChildFailed."""
    command = [sys.executable, "-m", module, *arguments]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=CASE_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise ChildFailed(f"{module} did not end within {CASE_SECONDS:.0f} s") from error
    if done.returncode < 0:
        raise ChildFailed(f"{module} died by {signal.Signals(-done.returncode).name}")
    lines = done.stdout.strip().splitlines()
    try:
        body: dict[str, Any] = json.loads(lines[-1])
    except (IndexError, ValueError) as error:
        told = done.stderr.strip().splitlines()
        raise ChildFailed(f"{module} ended with status {done.returncode}: {told[-1] if told else ''}") from error
    if "error" in body:
        raise ChildFailed(f"{module}: {body['error']['message']}")
    return body
