"""Arm `dense`: plain llama.cpp and our backbone, every expert local, rounds alternating; on the CPU or with the dense
path on a GPU."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from inference.benchmarks.full_size import limits, parts
from inference.benchmarks.overhead import Plan, run_plan
from inference.benchmarks.progress import Progress
from inference.benchmarks.report import Result
from inference.gguf_index import open_index


def dense(
    model: Path,
    batches: Sequence[int],
    *,
    pairs: int,
    threads: int,
    gpu_layers: int,
    progress: Progress,
) -> Iterator[Result]:
    """Cases `m0/cpu/batch=N`, or `m0/gpu/batch=N` where gpu_layers is not 0, each with the milliseconds of a layer by
    part in plain llama.cpp. Raises SideFailed."""
    name = "m0/gpu" if gpu_layers else "m0/cpu"
    index = open_index(model)
    plan = Plan(name, model, batches, pairs, round_seconds=1.0, with_defaults=False, gpu_layers=gpu_layers)
    progress(0.0, "parts of a layer")
    layers = len(index.offered_layers)
    alone = parts.measure(model, batches, layers=layers, threads=threads, gpu_layers=gpu_layers)
    bytes_per_second = limits.memory_bytes_per_second(threads)
    for batch, result in zip(batches, run_plan(plan, threads, progress), strict=True):
        limit, what = limits.local_limit(
            index, batch, threads=threads, bytes_per_second=bytes_per_second, on_gpu=bool(gpu_layers)
        )
        part = alone[batch]
        # Of one layer: what llama.cpp's scheduler and the callback into Python cost with nothing to send.
        pairs_of = zip(result.samples, result.peer_samples, strict=True)
        callback_ms = 1000 * batch / layers * statistics.median(1 / ours - 1 / plain for ours, plain in pairs_of)
        times = {key: round(value, 3) for key, value in part.layer_ms.items()}
        said = " + ".join(f"{key} {value:.1f}" for key, value in times.items())
        yield replace(
            result,
            case=result.case.replace(" ", "/"),
            limit=limit,
            limit_what=what,
            extra={
                **result.extra,
                "layers": layers,
                "of_limit": round(result.value / limit, 3),
                "memory_bytes_per_second": round(bytes_per_second),
                "over_plain_ms_per_layer": round(callback_ms, 3),
                "plain_ms_per_layer": times,
                "plain_head_ms_per_step": round(part.head_ms, 3),
                "note": f"{result.value / limit:.2f} of its limit ({what}); plain, ms per layer: {said}; head "
                f"{part.head_ms:.1f} a step",
            },
        )
