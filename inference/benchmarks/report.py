"""What a benchmark prints: one JSON object, or a table for people.

    {"bench": NAME, "commit": ..., "machine": {...}, "results": [{"case", "value", "unit", "samples", "peer",
     "peer_value", "ratio", "limit", "limit_what", "goal", "met", ...}]}

`value` is a median over interleaved repetitions (ours, peer, ours, peer ...); `ratio` is ours / peer pair by pair,
median; `limit` the computed physical bound where there is one; `goal` is a bound on the ratio, `met` says whether it is
reached (null without a goal). Benchmarks may add fields of their own.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Result:
    """One case. samples: ours, in `unit`; peer_samples: the peer's, pair by pair."""

    case: str
    unit: str
    samples: Sequence[float]
    peer: str | None = None
    peer_samples: Sequence[float] = ()
    limit: float | None = None
    limit_what: str | None = None
    goal: float | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def value(self) -> float:
        return statistics.median(self.samples)

    @property
    def ratio(self) -> float | None:
        return pair_ratio(self.samples, self.peer_samples)

    @property
    def met(self) -> bool | None:
        return None if self.goal is None or self.ratio is None else self.ratio >= self.goal

    def to_json(self) -> dict[str, Any]:
        return {
            "case": self.case,
            "value": self.value,
            "unit": self.unit,
            "samples": list(self.samples),
            "peer": self.peer,
            "peer_value": statistics.median(self.peer_samples) if self.peer_samples else None,
            "ratio": self.ratio,
            "limit": self.limit,
            "limit_what": self.limit_what,
            "goal": self.goal,
            "met": self.met,
            **self.extra,
        }


def pair_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """Median of ours / theirs over pairs; None without pairs."""
    pairs = list(zip(ours, theirs, strict=False))
    return statistics.median(a / b for a, b in pairs) if pairs else None


def as_object(name: str, results: Sequence[Result], root: Path) -> dict[str, Any]:
    return {
        "bench": name,
        "commit": commit(root),
        "machine": machine(),
        "results": [result.to_json() for result in results],
    }


def as_table(results: Sequence[Result]) -> list[str]:
    """Lines for people: one per case."""
    rows = [("case", "ours", "peer", "ratio", "goal", "")]
    for result in results:
        body = result.to_json()
        goal = "" if result.goal is None else f"{result.goal:.2f}"
        verdict = {None: "", True: "met", False: "MISSED"}[result.met]
        peer = "" if body["peer_value"] is None else f"{body['peer_value']:.4g} {result.unit}"
        ratio = "" if result.ratio is None else f"{result.ratio:.3f}"
        rows.append((result.case, f"{result.value:.4g} {result.unit}", peer, ratio, goal, verdict))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    notes = [f"  {result.case}: {note}" for result in results if (note := result.extra.get("note"))]
    return lines + notes


def machine() -> dict[str, Any]:
    """What the figures depend on. cores: those that this process may use."""
    return {
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "python": platform.python_version(),
        "llama_cpp_python": _version("llama-cpp-python"),
    }


def commit(root: Path) -> str | None:
    """The tree's commit, `+changes` when files differ from it; None outside a repository."""
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True)
        changes = subprocess.run(
            ["git", "status", "--porcelain", "-uno"], cwd=root, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return head.stdout.strip() + ("+changes" if changes.stdout.strip() else "")


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
