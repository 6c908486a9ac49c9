"""`verify --browser`: every remote expert computed by a browser tab, against plain llama.cpp fed the same batches.

Another kernel class adds floats up in another order, so bits differ; what it must show are limits, as for `compact`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from inference.verify.cases import MIN_POSITIONS, QUICK_POSITIONS, Case
from inference.verify.runner import CaseResult, ChildFailed, run_recorded

# Measured: see docs/verification.md. An int8 rounding of an inner activation that turns over moves single logits, as
# another batch size does in plain llama.cpp (up to 1.3); a wrong kernel would part the distributions everywhere.
KL_LIMIT, MEAN_KL_LIMIT, TOP1_LIMIT = 0.1, 0.002, 0.95
FULL = (
    Case("a tab, q8 rows", kernel="browser", workers=1, sequences=8, requests=16, tokens=40),
    Case("a tab, f32 rows", kernel="browser", workers=1, row_type="f32", sequences=4, requests=8, tokens=40),
    Case("two tabs, Q6_K experts", model="Q6_K", kernel="browser", workers=2, sequences=4, requests=8, tokens=40),
    Case("two tabs, one of them killed", kernel="browser", workers=2, kill=True, remote=(0.2, 0.95)),
)
QUICK = (Case("a tab, q8 rows", kernel="browser", workers=1, sequences=4, requests=5, tokens=20),)


def verify_browser(
    cache: Path, *, quick: bool, progress: Callable[[float, str], None] = lambda share, text: None
) -> Iterator[CaseResult]:
    """The cases, one by one. cache: folder for the synthetic models, kept."""
    cases = QUICK if quick else FULL
    for number, case in enumerate(cases):
        progress(number / len(cases), case.name)
        yield run_case(case, cache, QUICK_POSITIONS if quick else MIN_POSITIONS)


def run_case(case: Case, cache: Path, positions: int) -> CaseResult:
    try:
        run, traces = run_recorded(case, cache)
    except ChildFailed as failure:
        return CaseResult(case.name, "browser", False, extra={"error": str(failure)})
    return judged(case, run, traces, positions)


def judged(case: Case, run: dict[str, Any], traces: list[dict[str, Any]], positions: int) -> CaseResult:
    """traces: as `inference.verify.replay` prints them."""
    compared = sum(trace["positions"] for trace in traces)
    kl_max = max(trace["kl_max"] for trace in traces)
    kl_mean = sum(trace["kl_mean"] * trace["positions"] for trace in traces) / max(1, compared)
    top1 = sum(trace["top1_agreement"] * trace["positions"] for trace in traces) / max(1, compared)
    low, high = case.remote
    problems = []
    if compared < positions:
        problems.append(f"only {compared} positions, at least {positions} are wanted")
    if not low <= run["remote_share"] <= high:
        problems.append(f"tabs computed {run['remote_share']:.1%} of the expert rows, expected {low:.0%} to {high:.0%}")
    if not (kl_max <= KL_LIMIT and kl_mean <= MEAN_KL_LIMIT and top1 >= TOP1_LIMIT):
        problems.append("the logits part from plain llama.cpp's")
    if "error" in run["finishes"]:
        problems.append(f"{run['finishes']['error']} requests failed")
    if case.kill and not run["failures"]:
        problems.append("the killed tab was not noticed")
    extra = {key: run[key] for key in ("remote_share", "places", "failures", "finishes")}
    extra |= {"kl_mean": kl_mean, "kl_limit": KL_LIMIT, "kl_mean_limit": MEAN_KL_LIMIT, "top1_limit": TOP1_LIMIT}
    if problems:
        extra["error"] = "; ".join(problems)
    worst = max(trace["max_abs_diff"] for trace in traces)
    return CaseResult(case.name, "browser", not problems, compared, worst, kl_max, top1, extra)
