"""What a machine can do at most: the bounds that stand beside the rates.

A step reads the dense weights once, and every expert that any of its tokens chose; and the products of its rows take
what the kernel takes for them alone. Both are measured on this machine, in the same call as the rates.
"""

import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from inference.benchmarks.rig.ranges import MappedRanges
from inference.gguf_index import EXPERT_TENSOR, ModelIndex
from inference.gguf_split import read_parts
from inference.kernel import CpuRuntime, GgmlKernel
from inference.verify.local_swarm import Range

READ_BYTES = 1 << 30
REPETITIONS = 5


class Limit(NamedTuple):
    """Tokens per second at most, and why."""

    tokens_per_second: float
    what: str


def memory_bytes_per_second(threads: int, size: int = READ_BYTES) -> float:
    """Reading with so many threads, each its own part: numpy adds up without holding the interpreter."""
    parts = np.array_split(np.ones(size // 8, np.int64), threads)
    taken = []
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(REPETITIONS):
            began = time.perf_counter()
            list(pool.map(np.sum, parts))
            taken.append(time.perf_counter() - began)
    return size / min(taken)


def kernel_rows_per_second(index: ModelIndex, held: Range, sequences: int, threads: int = 1) -> float:
    """(row, expert) pairs per second of a kernel on this range, for a batch as its worker gets it: no socket, no
    relay."""
    rows = max(1, round(sequences * index.experts_used * (held.last - held.first) / index.experts_per_layer))
    random = np.random.default_rng(0)
    ids = np.sort(random.integers(held.first, held.last, rows)).astype(np.int32)
    values = random.standard_normal((rows, index.n_embd), np.float32)
    with GgmlKernel(MappedRanges(index).slice_of(held), CpuRuntime(threads)) as kernel:
        kernel.compute(values, ids)
        taken = []
        for _ in range(REPETITIONS):
            began = time.perf_counter()
            kernel.compute(values, ids)
            taken.append(time.perf_counter() - began)
    return rows / statistics.median(taken)


def dense_bytes(index: ModelIndex) -> int:
    """What a step reads whatever its tokens are: all of the trunk but routed experts and the table of embeddings."""
    size = 0
    for _, header in read_parts(index.path):
        for tensor in header.tensors.values():
            block = int(tensor.name.split(".")[1]) if tensor.name.startswith("blk.") else 0
            is_read = EXPERT_TENSOR.fullmatch(tensor.name) is None and tensor.name != "token_embd.weight"
            size += tensor.size if is_read and block < index.trunk_layers else 0
    return size


def touched_bytes(index: ModelIndex, batch: int) -> float:
    """Of the routed experts that a step of `batch` tokens is expected to read, were all equally likely."""
    share = 1 - (1 - index.experts_used / index.experts_per_layer) ** batch
    return share * index.routed_bytes


def local_limit(index: ModelIndex, batch: int, *, threads: int, bytes_per_second: float, on_gpu: bool) -> Limit:
    """The lesser of two bounds with every expert local: reading the weights, computing the experts alone."""
    read = touched_bytes(index, batch) + (0 if on_gpu else dense_bytes(index))
    by_memory = batch * bytes_per_second / read
    layer = index.offered_layers[0]
    whole = Range(layer, 0, index.experts_per_layer)
    rows = kernel_rows_per_second(index, whole, batch, threads)
    by_experts = rows / (len(index.offered_layers) * index.experts_used)
    return min(
        Limit(by_memory, f"reading {read / 1e9:.1f} GB a step at {bytes_per_second / 1e9:.1f} GB/s"),
        Limit(by_experts, "computing the experts alone, by the same kernel on all threads"),
    )


def swarm_limit(index: ModelIndex, held: Range, workers: int, sequences: int, round_trip_ms: int) -> Limit:
    """The lesser of W cores (of those that there are) that compute experts alone, and of the round trips."""
    layers, cores = len(index.offered_layers), min(workers, len(os.sched_getaffinity(0)))
    rows = cores * kernel_rows_per_second(index, held, sequences)
    limits = [Limit(rows / (layers * index.experts_used), f"experts alone, on {cores} of the workers' cores")]
    if round_trip_ms:
        limits.append(Limit(sequences / (layers * round_trip_ms / 1000), "sequences / (layers x round trip)"))
    return min(limits)
