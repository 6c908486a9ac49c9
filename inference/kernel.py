"""The expert kernel: rows x experts -> rows, by ggml's own `mul_mat_id`, three products and a SwiGLU per pair.

The same code serves the backbone (weights at llama.cpp's own pointers) and the worker (weights in a mapped slice), so
both give the same bits on the same kind of machine.

One rule keeps them equal: *all rows of one expert in one step are computed in one call.* ggml 0.25.3 switches to a
tiled product when an expert gets eight rows or more (`src/ggml-cpu/tiled/tiled.cpp`, `ggml_tiled_min_batch`), which may
add floats in another order; a group of nine rows split into four and five would give other last bits.

This module knows weights, rows and experts; it knows nothing of sockets, claims or llama.cpp's graphs.
"""

import ctypes as C
import functools
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from inference import ggml
from inference.gguf_index import Role
from inference.rows import (
    ROW_TYPES,
    ByteArray,
    Float32Array,
    IntArray,
    RowsError,
    RowType,
    restore_sums,
    strip_sums,
    wire_row_bytes,
)
from inference.slice_file import SliceFile

ALIGNMENT = 64
PREPARED_SHAPES = 32  # graphs kept per kernel; a graph of one shape costs about 10 kB
GRAPH_NODES = 16
Q8_TYPES = (ggml.TYPE_Q8_K, ggml.TYPE_Q8_0)


class ExpertKernel(Protocol):
    """What a worker needs of a kernel; one instance holds experts [first, last) of one layer."""

    layer: int
    first: int
    last: int
    n_embd: int
    kernel_class: str

    def compute(self, rows: Float32Array | ByteArray, expert_ids: IntArray) -> Float32Array:
        """One result row per (row, expert) pair.

        rows: (m, n_embd) float32, or (m, row_bytes) uint8 wire q8 rows (`inference.rows`); expert_ids: (m,) int32,
        numbered as in the model, in [first, last). Returns (m, n_embd) float32.
        Raises RowsError when shapes do not fit or an expert is outside the range.
        """
        ...

    def close(self) -> None:
        """Releases the weights."""
        ...


@functools.cache
def kernel_class_name() -> str:
    """Names the arithmetic: two machines of one class give the same bits, e.g. `ggml-0.25.3/avx2+avx512+fma`."""
    library = ggml.load()
    features = "+".join(sorted(name for name, present in library.cpu_features.items() if present))
    return f"ggml-{library.version}/{features or 'generic'}"


def q8_block_type(gate_type: int, up_type: int) -> int | None:
    """The block type in which rows of a layer can be sent exactly, or None when only float32 rows are exact.

    Gate and up meet the same row, so both must want the same blocks.
    """
    library = ggml.load()
    wanted = {library.vec_dot_type(gate_type), library.vec_dot_type(up_type)}
    block_type = wanted.pop()
    return block_type if not wanted and block_type in Q8_TYPES else None


def quantize_rows(rows: Float32Array, block_type: int) -> ByteArray:
    """(m, n_embd) float32 -> (m, row_bytes) uint8 wire rows, with the kernel's own `from_float`."""
    library = ggml.load()
    rows = np.ascontiguousarray(rows, np.float32)
    count, n_embd = rows.shape
    blocks = np.empty((count, library.row_size(block_type, n_embd)), np.uint8)
    traits = library.type_traits_cpu(block_type).contents
    traits.from_float(rows.ctypes.data, blocks.ctypes.data, count * n_embd)
    return strip_sums(blocks) if block_type == ggml.TYPE_Q8_K else blocks


@dataclass(frozen=True)
class WeightMatrix:
    """One expert tensor in memory: (experts, n_out, n_in) of ggml type `type` at `address`."""

    address: int
    type: int
    n_in: int
    n_out: int
    experts: int

    @property
    def size_bytes(self) -> int:
        return ggml.load().row_size(self.type, self.n_in) * self.n_out * self.experts


class CpuRuntime:
    """A ggml CPU backend with its own thread count and scratch memory, used by one thread at a time (`lock`)."""

    def __init__(self, threads: int) -> None:
        self.ggml = ggml.load()
        self.threads = threads
        self.backend = self.ggml.cpu_init()
        self.ggml.cpu_set_n_threads(self.backend, threads)  # without this: four, whatever the machine
        self.lock = threading.Lock()
        self.generation = 0
        self._memory: ByteArray = np.empty(0, np.uint8)
        self._buffer: int | None = None

    def reserve(self, size: int) -> tuple[int, int]:
        """(buffer handle, aligned address) of at least `size` bytes; growing starts a new `generation`."""
        if self._buffer is None or self._capacity() < size:
            self._release()
            self._memory = np.empty(size + size // 2 + ALIGNMENT, np.uint8)
            self._buffer = self.ggml.cpu_buffer_from_ptr(self._address(), self._capacity())
            self.generation += 1
        assert self._buffer is not None
        return self._buffer, self._address()

    def compute(self, graph: int) -> int:
        """Runs a graph; returns ggml's status (0 is success)."""
        return self.ggml.graph_compute(self.backend, graph)

    def close(self) -> None:
        self._release()
        if self.backend:
            self.ggml.backend_free(self.backend)
            self.backend = 0

    def _address(self) -> int:
        start: int = self._memory.ctypes.data
        return start + (-start % ALIGNMENT)

    def _capacity(self) -> int:
        return max(0, len(self._memory) - ALIGNMENT)

    def _release(self) -> None:
        if self._buffer is not None:
            self.ggml.buffer_free(self._buffer)
            self._buffer = None


@dataclass
class PreparedGraph:
    """A graph for one number of pairs: write `rows` and `ids`, compute, read `result` (all views of scratch memory)."""

    context: int
    graph: int
    generation: int
    rows: npt.NDArray[Any]
    ids: IntArray
    result: Float32Array


class ExpertMatmul:
    """Experts of one layer on one runtime. Weights are borrowed: the caller keeps the memory alive.

    gate, up, down as in the file, or gate_up (n_out = 2 n_ff, gate first) with `up` None.
    """

    def __init__(self, runtime: CpuRuntime, gate: WeightMatrix, up: WeightMatrix | None, down: WeightMatrix) -> None:
        self.runtime = runtime
        self.matrices: Sequence[WeightMatrix] = [gate, down] if up is None else [gate, up, down]
        self.merged = up is None
        self.n_embd, self.n_ff, self.experts = gate.n_in, down.n_in, gate.experts
        self.block_type = q8_block_type(gate.type, gate.type if up is None else up.type)
        self._weight_buffers = [
            runtime.ggml.cpu_buffer_from_ptr(matrix.address, matrix.size_bytes) for matrix in self.matrices
        ]
        self._prepared: OrderedDict[tuple[int, int], PreparedGraph] = OrderedDict()

    def compute(self, rows: Float32Array | ByteArray, local_ids: IntArray) -> Float32Array:
        """rows (m, n_embd) float32 or (m, row_bytes) uint8 wire rows; local_ids (m,) in [0, experts) -> (m, n_embd)."""
        with self.runtime.lock:
            prepared = self.prepare(len(local_ids), typed=rows.dtype == np.uint8)
            if rows.dtype == np.uint8 and self.block_type == ggml.TYPE_Q8_K:
                restore_sums(rows.view(np.uint8), prepared.rows)
            else:
                prepared.rows[:] = rows
            prepared.ids[:] = local_ids
            self.run(prepared)
            return prepared.result.copy()

    def prepare(self, pairs: int, *, typed: bool) -> PreparedGraph:
        """The graph for `pairs` pairs with float32 or typed rows; the caller holds the runtime's lock."""
        row_type = self.block_type if typed else ggml.TYPE_F32
        if row_type is None:
            raise RowsError("this layer takes float32 rows only")
        key = (pairs, row_type)
        found = self._prepared.get(key)
        if found is not None and found.generation == self.runtime.generation:
            self._prepared.move_to_end(key)
            return found
        if found is not None:
            self.runtime.ggml.free(self._prepared.pop(key).context)
        built = self._build(pairs, row_type)
        self._prepared[key] = built
        if len(self._prepared) > PREPARED_SHAPES:
            self.runtime.ggml.free(self._prepared.popitem(last=False)[1].context)
        return built

    def run(self, prepared: PreparedGraph) -> None:
        """Computes a prepared graph; the caller holds the runtime's lock. Raises RowsError when ggml refuses."""
        status = self.runtime.compute(prepared.graph)
        if status != ggml.STATUS_SUCCESS:
            raise RowsError(f"ggml could not compute the experts (status {status})")

    def close(self) -> None:
        library = self.runtime.ggml
        while self._prepared:
            library.free(self._prepared.popitem()[1].context)
        while self._weight_buffers:
            library.buffer_free(self._weight_buffers.pop())

    def _build(self, pairs: int, row_type: int) -> PreparedGraph:
        library = self.runtime.ggml
        size = library.tensor_overhead() * GRAPH_NODES + library.graph_overhead_custom(GRAPH_NODES, False) + 1024
        context = library.init(ggml.InitParams(size, None, True))

        def tensor(kind: int, *shape: int) -> Any:
            return library.new_tensor(context, kind, len(shape), (C.c_int64 * len(shape))(*shape))

        weights = [tensor(matrix.type, matrix.n_in, matrix.n_out, matrix.experts) for matrix in self.matrices]
        for weight, buffer, matrix in zip(weights, self._weight_buffers, self.matrices, strict=True):
            library.tensor_alloc(buffer, weight, matrix.address)
        rows, ids = tensor(row_type, self.n_embd, 1, pairs), tensor(ggml.TYPE_I32, 1, pairs)
        inner = self._inner(context, weights, rows, ids)
        result = library.mul_mat_id(context, weights[-1], inner[-1], ids)
        graph = library.new_graph_custom(context, GRAPH_NODES, False)
        library.build_forward_expand(graph, result)
        self._place([rows, ids, *inner, result])
        return PreparedGraph(
            context,
            graph,
            self.runtime.generation,
            _view(rows, np.float32, (pairs, self.n_embd))
            if row_type == ggml.TYPE_F32
            else _view(rows, np.uint8, (pairs, library.row_size(row_type, self.n_embd))),
            _view(ids, np.int32, (pairs,)),
            _view(result, np.float32, (pairs, self.n_embd)),
        )

    def _inner(self, context: int, weights: list[Any], rows: Any, ids: Any) -> list[Any]:
        """The tensors between the rows and the down product, SwiGLU last."""
        library = self.runtime.ggml
        if not self.merged:
            gate = library.mul_mat_id(context, weights[0], rows, ids)
            up = library.mul_mat_id(context, weights[1], rows, ids)
            return [gate, up, library.swiglu_split(context, gate, up)]
        both = library.mul_mat_id(context, weights[0], rows, ids)
        shape = both.contents
        halves = [
            library.view_3d(context, both, self.n_ff, shape.ne[1], shape.ne[2], shape.nb[1], shape.nb[2], offset)
            for offset in (0, self.n_ff * 4)
        ]
        return [both, *halves, library.swiglu_split(context, *halves)]

    def _place(self, tensors: list[Any]) -> None:
        """Lays tensors side by side in the scratch memory; a view takes its place from its source."""
        own = [tensor for tensor in tensors if not tensor.contents.view_src]
        buffer, address = self.runtime.reserve(sum(_padded_size(tensor) for tensor in own))
        for tensor in own:
            self.runtime.ggml.tensor_alloc(buffer, tensor, address)
            address += _padded_size(tensor)
        for tensor in tensors:
            if tensor.contents.view_src:
                self.runtime.ggml.view_init(tensor)


def _padded_size(tensor: Any) -> int:
    size: int = tensor.contents.nb[3] * tensor.contents.ne[3]
    return size + (-size % ALIGNMENT)


def _view(tensor: Any, kind: type[np.generic], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """A numpy view of a tensor's memory, which must be contiguous."""
    size = int(np.prod(shape)) * np.dtype(kind).itemsize
    memory = memoryview((C.c_uint8 * size).from_address(tensor.contents.data))
    return np.ndarray(shape, kind, buffer=memory)


class GgmlKernel:
    """A mapped slice served by ggml. Source of the arithmetic: `ExpertMatmul`."""

    def __init__(self, slice_file: SliceFile, runtime: CpuRuntime) -> None:
        self._file = slice_file
        self.layer, self.first, self.last = slice_file.layer, slice_file.first, slice_file.last
        self.n_embd = slice_file.n_embd
        self.kernel_class = kernel_class_name()
        self._matmul = ExpertMatmul(runtime, *_slice_matrices(slice_file))
        self.block_type = self._matmul.block_type

    @classmethod
    def open(cls, path: Path, runtime: CpuRuntime) -> Self:
        """Maps the slice at `path`; raises GGUFError when it is not one."""
        return cls(SliceFile.open(path), runtime)

    def compute(self, rows: Float32Array | ByteArray, expert_ids: IntArray) -> Float32Array:
        check_pairs(rows, expert_ids, self.first, self.last, self.n_embd, self.block_type)
        return self._matmul.compute(rows, expert_ids - self.first)

    def close(self) -> None:
        self._matmul.close()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def check_pairs(
    rows: Float32Array | ByteArray, expert_ids: IntArray, first: int, last: int, n_embd: int, block_type: int | None
) -> None:
    """Raises RowsError unless rows and ids fit a slice [first, last) of width n_embd: peers are strangers."""
    if len(rows) != len(expert_ids) or not len(rows):
        raise RowsError(f"{len(rows)} rows for {len(expert_ids)} expert numbers")
    if expert_ids.min() < first or expert_ids.max() >= last:
        raise RowsError(f"expert numbers outside {first}-{last - 1}")
    row_type = ROW_TYPES.get(block_type or 0, RowType.Q8) if rows.dtype == np.uint8 else RowType.F32
    width = wire_row_bytes(row_type, n_embd, block_type)
    if rows.shape[1] * rows.itemsize != width:
        raise RowsError(f"rows of {rows.shape[1] * rows.itemsize} bytes where this layer has {width}")


def _slice_matrices(slice_file: SliceFile) -> tuple[WeightMatrix, WeightMatrix | None, WeightMatrix]:
    def matrix(role: Role) -> WeightMatrix:
        kind, (n_in, n_out, experts), data = slice_file.tensors[role]
        return WeightMatrix(data.ctypes.data, kind, n_in, n_out, experts)

    if slice_file.merged:
        return matrix("gate_up"), None, matrix("down")
    return matrix("gate"), matrix("up"), matrix("down")
