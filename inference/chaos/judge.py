"""The checks after a chaotic run: traces, books, credit, memory. Each returns figures and what is wrong with them."""

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inference.chaos.target import StoredEvent, Target
from inference.verify.runner import run_trace

# A backbone reports each second and collects its counts each second; a spool write may be that much late.
REPORT_LAG_SECONDS = 3.0
# Allowed growth of a process's own memory from the first to the last third of its life.
GROWTH_LIMIT_BYTES = 48 << 20
JUDGED_LIFE_SECONDS = 90.0

EMPTY_TRACE = "only 0 positions, at least 1 are wanted"

SUSPENSIONS = frozenset({"node-suspended", "node-quarantined"})


@dataclass
class Watched:
    """What was seen while it ran. rows: boot -> [(unix time, rows that workers computed and it used)];
    memory: (process name, pid) -> [(unix time, bytes)]; killed: boot -> unix time of its SIGKILL; rings: boot -> what
    it last said of them."""

    rows: dict[str, list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))
    memory: dict[tuple[str, int], list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))
    killed: dict[str, float] = field(default_factory=dict)
    rings: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass
class Verdict:
    """figures: for the printed object; problems: why the run is not ok."""

    figures: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def add(self, name: str, figure: Any, problem: str = "") -> None:
        self.figures[name] = figure
        if problem:
            self.problems.append(problem)


def judge_traces(verdict: Verdict, traces: Sequence[Path], *, exact: bool = True) -> None:
    """Every recorded logits row again from plain llama.cpp. exact: whether a difference is a problem."""
    results = [run_trace(path) for path in traces]
    wrong = [
        f"{path.parent.name}/{path.name}: {result.extra['error']}"
        for path, result in zip(traces, results, strict=True)
        if not result.ok and result.extra["error"] != EMPTY_TRACE  # a lane that a short-lived backbone never used
    ]
    differences = [result.max_abs_diff for result in results if result.max_abs_diff is not None]
    verdict.add("traces", len(traces))
    verdict.add("positions", sum(result.positions for result in results))
    verdict.add("traces_different", len(wrong))
    verdict.add("max_abs_diff", max(differences, default=None), "; ".join(wrong) if wrong and exact else "")
    if not any(result.positions for result in results):
        verdict.problems.append("no trace holds anything")


def judge_books(verdict: Verdict, server: Target, events: Sequence[StoredEvent]) -> None:
    """Read models equal a replay of the events; every event's postings sum to zero."""
    replayed = server.manage("replay", "--check")
    problem = "" if replayed.returncode == 0 else f"replay --check: {(replayed.stdout + replayed.stderr)[-800:]}"
    verdict.add("replay_check", replayed.returncode == 0, problem)
    sums = [(event.position, sum(line["amount_microcredits"] for line in event.postings)) for event in events]
    unbalanced = [position for position, total in sums if total]
    suspended = sum(event.name in SUSPENSIONS for event in events)
    verdict.add("unbalanced_events", len(unbalanced), f"unbalanced events: {unbalanced[:5]}" if unbalanced else "")
    verdict.add("nodes_suspended", suspended)


def judge_liars(verdict: Verdict, lied: int) -> None:
    """Every liar that lied is suspended but one, which may have been caught by the backbone just before that died, or
    have told its first lie at the very end."""
    caught = verdict.figures["nodes_suspended"]
    problem = f"{lied} workers lied, {caught} were suspended" if caught < lied - 1 else ""
    verdict.add("liars_that_lied", lied, problem)


def judge_credit(verdict: Verdict, watched: Watched, events: Sequence[StoredEvent], spool_seconds: float) -> None:
    """Per boot: what a killed backbone had used by the last spool write must be credited; the others' all of it."""
    credited: dict[str, int] = defaultdict(int)
    for event in events:
        if event.name == "work-credited":
            credited[event.body["key"].split("/")[1]] += sum(line["rows"] for line in event.body["work"])
    lost = {}
    for boot, seen in watched.rows.items():
        killed_at = watched.killed.get(boot)
        due = [rows for at, rows in seen if killed_at is None or at <= killed_at - spool_seconds - REPORT_LAG_SECONDS]
        used = seen[-1][1]
        lost[boot] = max(0, used - credited[boot])
        owed = max(due, default=0)
        if credited[boot] < owed:
            verdict.problems.append(
                f"boot {boot} was credited {credited[boot]} rows, at least {owed} were due (it used {used})"
            )
    verdict.add("rows_used", {boot: seen[-1][1] for boot, seen in watched.rows.items()})
    verdict.add("rows_credited", dict(credited))
    verdict.add("rows_lost_to_kills", lost)


def judge_rings(verdict: Verdict, watched: Watched, kills: int) -> None:
    """Rings were used, and where many stages were killed some were lost, their sequences read again. The last words of
    a backbone that was killed itself may miss one."""
    for name, is_due in (("steps", True), ("rings_lost", kills > 2), ("replayed_tokens", kills > 2)):
        total = sum(int(rings[name]) for rings in watched.rings.values())
        problem = f"{kills} stages were killed, but {name} of rings is 0" if is_due and not total else ""
        verdict.add(f"ring_{name}", total, problem)


def judge_memory(verdict: Verdict, watched: Watched) -> None:
    """Per process that lived long enough: the most in the last third of its life against the first third."""
    growth: dict[str, int] = {}
    for (name, _), samples in watched.memory.items():
        life = samples[-1][0] - samples[0][0]
        if life < JUDGED_LIFE_SECONDS:
            continue
        third = math.ceil(len(samples) / 3)
        grown = max(size for _, size in samples[-third:]) - max(size for _, size in samples[:third])
        growth[name] = max(grown, growth.get(name, grown))
        if grown > GROWTH_LIMIT_BYTES:
            verdict.problems.append(f"{name} grew by {grown >> 20} MiB")
    verdict.add("memory_growth_bytes", growth)


def to_json(verdict: Verdict) -> str:
    return json.dumps({"ok": not verdict.problems, **verdict.figures, "problems": verdict.problems}, indent=2)
