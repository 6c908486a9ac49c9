"""`manage.py bench kernel`: the browser worker's kernel in Chromium against ggml, both in one thread.

One expert of 3 x 3072 x 1024 (the 122B's shape), q8 rows as they come over the wire. Rounds alternate, so that what
else runs on the machine hits both sides. A batch should cost less per row than a single one: `per_row` of its case is
its speed against that of one row. Case `wasm/sha256`: the digest that a tab computes at each start, against hashlib's.
"""

import hashlib
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import numpy as np

from inference.benchmarks.progress import Progress
from inference.benchmarks.report import Result
from inference.benchmarks.wasm_page import WasmPage
from inference.kernel import CpuRuntime, GgmlKernel, quantize_rows
from inference.rows import ByteArray, Float32Array, IntArray
from inference.synthetic_slice import SliceShape, write_synthetic_slice

GOAL = 0.6
TYPES = {"Q4_K": 12, "Q5_K": 13, "Q6_K": 14}
BATCHES = (1, 8, 32)
ROUND_SECONDS = 0.25
PAIRS = 15
DIGEST_BYTES = 32 << 20

Rows = Float32Array | ByteArray


def kernel(cache: Path, *, quick: bool, threads: int, progress: Progress) -> list[Result]:
    """All types and batches. `threads` is not used: one thread each. Raises NoBrowser."""
    n_embd, n_ff = (512, 256) if quick else (3072, 1024)
    pairs, seconds = (2, 0.02) if quick else (PAIRS, ROUND_SECONDS)
    runtime = CpuRuntime(1)
    results: list[Result] = []
    try:
        with WasmPage() as page:
            for number, (name, kind) in enumerate(TYPES.items()):
                shape = SliceShape(n_embd, n_ff, 1, {"gate": kind, "up": kind, "down": kind})
                path = write_synthetic_slice(cache / f"kernel-{name}-{n_embd}.gguf", shape)
                page.open(path)
                with GgmlKernel.open(path, runtime) as peer:
                    for place, batch in enumerate(BATCHES):
                        case = f"wasm/{name}/1thread" + (f"/batch={batch}" if batch > 1 else "")
                        progress((number * len(BATCHES) + place) / len(TYPES) / len(BATCHES), case)
                        measured = _measure(case, page, peer, batch, pairs, seconds)
                        one = results[-place] if place else measured
                        results.append(replace(measured, extra={"per_row": measured.value / one.value}))
            results.append(_digest(page, DIGEST_BYTES if not quick else 1 << 20, min(pairs, 5)))
    finally:
        runtime.close()
    return results


def _measure(case: str, page: WasmPage, peer: GgmlKernel, batch: int, pairs: int, seconds: float) -> Result:
    values = np.random.default_rng(batch).standard_normal((batch, peer.n_embd), dtype=np.float32)
    assert peer.block_type is not None
    rows, experts = quantize_rows(values, peer.block_type), np.full(batch, peer.first, np.int32)
    page.rows_per_second(rows, experts, seconds)  # the browser's compiler warms up
    ours, theirs = [], []
    for pair in range(pairs):
        for side in ("ours", "theirs") if pair % 2 == 0 else ("theirs", "ours"):
            if side == "ours":
                ours.append(page.rows_per_second(rows, experts, seconds))
            else:
                theirs.append(_peer_rate(peer, rows, experts, seconds))
    goal = GOAL if case == "wasm/Q4_K/1thread" else None
    return Result(case, "rows/s", ours, "ggml, 1 thread", theirs, goal=goal)


def _digest(page: WasmPage, size: int, pairs: int) -> Result:
    data = bytes(size)
    ours, theirs = [], []
    page.digest_bytes_per_second(1 << 20)
    for _ in range(pairs):
        ours.append(page.digest_bytes_per_second(size))
        began = perf_counter()
        hashlib.sha256(data).digest()
        theirs.append(size / (perf_counter() - began))
    return Result("wasm/sha256", "bytes/s", ours, "hashlib", theirs)


def _peer_rate(peer: GgmlKernel, rows: Rows, experts: IntArray, seconds: float) -> float:
    began = perf_counter()
    done, taken = 0, 0.0
    while taken < seconds:
        peer.compute(rows, experts)
        done += len(experts)
        taken = perf_counter() - began
    return done / taken
