"""`manage.py bench audit`: how many rows a liar answers before it is caught, how often an honest worker is accused, and
what audits cost.

Real kernels on slices of the demo model answer random rows in the wire's q8 form; the model file itself is the oracle,
as on a backbone. Rules and trust are those of `inference.audit`. A liar lies from its first real answer on (it answered
its challenge rightly), or first earns trust. Only audited answers are computed, so long waits cost no time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from inference import liars
from inference.audit import AuditCase, Ledger, NodeClass, Plan
from inference.benchmarks.progress import Progress
from inference.benchmarks.report import Result
from inference.challenge import ExpertOracle
from inference.gguf_index import open_index
from inference.kernel import CpuRuntime, ExpertKernel, GgmlKernel, kernel_class_name, quantize_rows
from inference.liars import Compute, Lie
from inference.numpy_kernel import KERNEL_CLASS as NUMPY_CLASS
from inference.numpy_kernel import NumpyKernel
from inference.rows import TYPE_Q8_K, Float32Array, IntArray
from inference.slices import plan_slice, write_slice
from inference.synthetic import DEMO_MODEL, demo_variant

LAYER, EXPERTS = 0, 32
ANSWER_ROWS = 32
# Fewer, larger answers where only rows are counted.
BULK_ROWS = 512
TRUST_BEFORE_LYING = (0, 10, 100, 1000)
MOST_ROWS = 20_000_000


@dataclass
class Bench:
    """The oracle and an honest kernel per class; coarse: kernels over a model whose down weights are Q3_K."""

    oracle: ExpertOracle
    honest: dict[str, ExpertKernel]
    coarse: dict[str, ExpertKernel]
    random: np.random.Generator

    def rows(self, count: int) -> tuple[Float32Array, IntArray]:
        rows = self.random.standard_normal((count, self.honest[NUMPY_CLASS].n_embd), dtype=np.float32)
        return rows, self.random.integers(0, EXPERTS, count, dtype=np.int32)

    def expected(self, rows: Float32Array, experts: IntArray) -> Float32Array:
        return self.oracle.compute(LAYER, rows, experts)


def over_the_wire(kernel: ExpertKernel) -> Compute:
    """The kernel as a backbone reaches it: rows quantised to the wire's q8 form."""
    return lambda rows, expert_ids: kernel.compute(quantize_rows(rows.view(np.float32), TYPE_Q8_K), expert_ids)


def audit(cache: Path, *, quick: bool, threads: int, progress: Progress) -> list[Result]:
    """All cases; `cache` keeps the requantised model."""
    repetitions, honest_rows = (3, 10_240) if quick else (41, 1_000_448)
    trusts = TRUST_BEFORE_LYING[:2] if quick else TRUST_BEFORE_LYING
    results: list[Result] = []
    with _bench(cache) as bench:
        cases = [(name, kernel_class) for name in [*LIES, "requantised weights"] for kernel_class in bench.honest]
        for number, (name, kernel_class) in enumerate(cases):
            progress(0.5 * number / len(cases), f"{name}, {kernel_class}")
            results += _liar(bench, name, kernel_class, trusts, repetitions)
        for number, kernel_class in enumerate(bench.honest):
            progress(0.5 + number / 4, f"{honest_rows} honest rows, {kernel_class}")
            results.append(_honest(bench, kernel_class, honest_rows))
    results.append(_cost(100_000 if quick else 1_000_000))
    return results


@contextmanager
def _bench(cache: Path) -> Iterator[Bench]:
    index = open_index(DEMO_MODEL)
    coarse = open_index(demo_variant(cache / "demo-down-q3_k.gguf", down_in_layers={LAYER: "Q3_K"}))
    with ExitStack() as stack:
        runtime = CpuRuntime(1)
        stack.callback(runtime.close)
        oracle = ExpertOracle(index, CpuRuntime(1))
        stack.callback(oracle.close)
        kernels: list[dict[str, ExpertKernel]] = []
        for name, source in (("honest", index), ("coarse", coarse)):
            path = cache / f"audit-{name}.gguf"
            write_slice(plan_slice(source, LAYER, 0, EXPERTS), path)
            opened: dict[str, ExpertKernel] = {
                kernel_class_name(): GgmlKernel.open(path, runtime),
                NUMPY_CLASS: NumpyKernel.open(path),
            }
            for kernel in opened.values():
                stack.callback(kernel.close)
            kernels.append(opened)
        yield Bench(oracle, kernels[0], kernels[1], np.random.default_rng(0))


LIES: dict[str, Callable[[int], Lie]] = {
    "constant offset": lambda seed: liars.constant_offset,
    "swapped experts": lambda seed: liars.SwappedExperts(0, EXPERTS),
    "replay of an old answer": lambda seed: liars.Replay(),
    "zeros": lambda seed: liars.zeros,
    "one wrong row in 1,000": lambda seed: liars.RareError(1000, seed),
}


def _liar(bench: Bench, name: str, kernel_class: str, trusts: Sequence[int], repetitions: int) -> list[Result]:
    """One result per trust that the liar has earned before; "honest only on challenges" is trust 0."""
    kernel = (bench.coarse if name not in LIES else bench.honest)[kernel_class]
    where = "same class" if kernel_class != NUMPY_CLASS else "other class"
    results = []
    for trust in trusts:
        samples, used = [], []
        for seed in range(repetitions):
            lie = LIES[name](seed) if name in LIES else None
            rows, rows_used = _rows_until_caught(bench, NodeClass("liar", kernel_class), kernel, lie, trust, seed)
            samples.append(float(rows))
            used.append(rows_used)
        extra: dict[str, Any] = {
            "rows_used_before": float(np.median(used)),
            "rows_most": max(samples),
            "caught": sum(sample < MOST_ROWS for sample in samples),
            "of": repetitions,
            "note": f"{np.median(used):.0f} rows had been used",
        }
        when = "honest only on challenges" if trust == 0 else f"after {trust} right answers"
        results.append(Result(f"{name}, {where}, {when}", "rows until caught", samples, extra=extra))
    return results


def _rows_until_caught(
    bench: Bench, who: NodeClass, kernel: ExpertKernel, lie: Lie | None, trust: int, seed: int
) -> tuple[int, int]:
    """(rows answered since the first lie, rows of them that were used)."""
    ledger, draws = Ledger(kernel_class_name()), np.random.default_rng([seed, trust])
    ledger.of(who).passes = trust
    rows = used = 0
    honest = over_the_wire(kernel)
    while rows < MOST_ROWS:
        plan = ledger.plan(who, float(draws.random()))
        rows += ANSWER_ROWS
        if plan is Plan.NONE:
            used += ANSWER_ROWS
            continue
        hidden, experts = bench.rows(ANSWER_ROWS)
        answer = honest(hidden, experts) if lie is None else lie(honest, hidden, experts)
        case = AuditCase(who, LAYER, hidden, experts, answer)
        finding = ledger.judge(case, bench.expected(hidden, experts), used=plan is Plan.AFTER)
        used += ANSWER_ROWS if finding is None or plan is Plan.AFTER else 0
        if finding is not None:
            break
    return rows, used


def _honest(bench: Bench, kernel_class: str, rows: int) -> Result:
    """False accusations among `rows` honest rows, all audited; the largest error and the share above the first mode."""
    ledger, who = Ledger(kernel_class_name()), NodeClass("alice", kernel_class)
    honest = over_the_wire(bench.honest[kernel_class])
    alarms, worst, above = 0, 0.0, 0
    for _ in range(0, rows, BULK_ROWS):
        hidden, experts = bench.rows(BULK_ROWS)
        answer, expected = honest(hidden, experts), bench.expected(hidden, experts)
        alarms += ledger.judge(AuditCase(who, LAYER, hidden, experts, answer), expected, used=True) is not None
        errors = np.square(answer - expected).sum(axis=1) / np.square(expected).sum(axis=1)
        worst, above = max(worst, float(errors.max())), above + int((errors > 1e-5).sum())
    where = "same class" if kernel_class != NUMPY_CLASS else "other class"
    extra = {"rows": rows, "worst_error": worst, "share_above_1e-5": above / rows,
             "note": f"worst error {worst:.2g}, {above / rows:.3%} of the rows above 1e-5"}  # fmt: skip
    return Result(f"honest, {where}", "false alarms", [float(alarms)], extra=extra)


def _cost(answers: int) -> Result:
    """Rows recomputed for one honest node, from its first answer on, in per cent of the rows that it computes."""
    samples: Sequence[float] = [_audited_share(answers, seed) for seed in range(5)]
    return Result(
        f"one honest node, {answers} answers",
        "% of worker compute",
        samples,
        limit=1.0,
        limit_what="the least audit probability, 1%",
    )


def _audited_share(answers: int, seed: int) -> float:
    ledger, who, draws = Ledger(NUMPY_CLASS), NodeClass("alice", NUMPY_CLASS), np.random.default_rng(seed)
    row = np.ones((1, 1), np.float32)
    right = AuditCase(who, LAYER, row, np.zeros(1, np.int32), row)
    audited = 0
    for _ in range(answers):
        if ledger.plan(who, float(draws.random())) is not Plan.NONE:
            ledger.judge(right, row, used=True)
            audited += 1
    return 100 * audited / answers
