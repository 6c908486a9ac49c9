"""An expert kernel in plain numpy: for machines without llama-cpp-python, and an oracle in the tests.

It knows one slice, rows and expert numbers; nothing of sockets, claims or money. Weights are dequantised by `gguf`. The
inputs of each product are rounded as ggml rounds them (`round_like_ggml`), so the results are those of ggml up to the
order of float sums, and where such a last bit turns an int8 rounding over. It is a kernel class of its own.
Source: llama.cpp `src/llama-graph.cpp`, `build_moe_ffn` (gate, up, SwiGLU, down; a merged tensor holds gate first).
"""

import contextlib
import threading
from collections import OrderedDict
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np
from gguf.constants import GGML_QUANT_SIZES
from gguf.constants import GGMLQuantizationType as GgmlType
from gguf.quants import dequantize

from inference.errors import NotASlice, UnknownType
from inference.gguf_index import Role
from inference.rows import (
    ROW_TYPES,
    ByteArray,
    Float32Array,
    IntArray,
    RowsError,
    dequantize_wire,
    wire_row_bytes,
)
from inference.slices import SliceFile

KERNEL_CLASS = "numpy"
DEFAULT_CACHE_BYTES = 256 << 20

# How ggml rounds the inputs of a product with weights of a type (ggml 0.25.3, `type_traits_cpu[type].vec_dot_type`).
# All other types but the floats take blocks of 256 (Q8_K). Q4_1 and Q5_1
# want Q8_1, which is Q8_0 with the block's sum beside it in half precision; that last rounding is not imitated.
BLOCK_32_TYPES = frozenset(
    {
        GgmlType.Q4_0,
        GgmlType.Q4_1,
        GgmlType.Q5_0,
        GgmlType.Q5_1,
        GgmlType.Q8_0,
        GgmlType.IQ4_NL,
        GgmlType.MXFP4,
        GgmlType.NVFP4,
    }
)


class ExpertWeights(NamedTuple):
    """One expert, dequantised: gate and up (n_ff, n_embd), down (n_embd, n_ff), all float32."""

    gate: Float32Array
    up: Float32Array
    down: Float32Array

    @property
    def size_bytes(self) -> int:
        return self.gate.nbytes + self.up.nbytes + self.down.nbytes


class NumpyKernel:
    """`inference.kernel.ExpertKernel` over one slice; safe to call from several threads.

    Weights stay quantised in the memory-mapped slice. An expert is dequantised when it is first asked for and kept, up
    to `cache_bytes` of dequantised weights (the expert in use is kept even when it alone is larger).
    """

    def __init__(self, slice_file: SliceFile, cache_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        """Raises UnknownType when `gguf` cannot dequantise a tensor, NotASlice when the experts are not SwiGLU."""
        self._slice = slice_file
        self.layer = slice_file.layer
        self.first = slice_file.first
        self.last = slice_file.last
        self.n_embd = slice_file.n_embd
        self.kernel_class = KERNEL_CLASS
        self._layouts = _q8_layouts(self.n_embd)
        self._cache_bytes = cache_bytes
        self._cached_bytes = 0
        self._cache: OrderedDict[int, ExpertWeights] = OrderedDict()
        self._lock = threading.Lock()
        tensors = slice_file.tensors
        if slice_file.activation != "swiglu" or not {"gate", "gate_up"} & set(tensors):
            raise NotASlice(f"{slice_file.path}: only gated SwiGLU experts can be computed")
        types = {role: _checked_type(role, tensor.ggml_type) for role, tensor in tensors.items()}
        self._gate_type = types["gate_up"] if "gate_up" in types else types["gate"]
        self._up_type = types["gate_up"] if "gate_up" in types else types["up"]
        self._down_type = types["down"]

    @classmethod
    def open(cls, slice_path: Path, cache_bytes: int = DEFAULT_CACHE_BYTES) -> Self:
        """A kernel over the slice file; raises GGUFError when it is not one, or has a type unknown to `gguf`."""
        return cls(SliceFile.open(slice_path), cache_bytes)

    def close(self) -> None:
        """Drop the dequantised weights and the map of the file."""
        with self._lock:
            self._cache.clear()
            self._cached_bytes = 0
            self._slice.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def cached_bytes(self) -> int:
        """Dequantised weights kept now, in bytes."""
        return self._cached_bytes

    def compute(self, rows: Float32Array | ByteArray, expert_ids: IntArray) -> Float32Array:
        """The expert outputs, one per (row, expert) pair.

        rows: (m, n_embd) float32, or (m, row_bytes) uint8 wire q8 rows of either layout (`inference.rows`; their sizes
        tell them apart); expert_ids: (m,) int32, numbered as in the model, in [first, last). Returns (m, n_embd)
        float32. Raises RowsError.
        """
        if not len(rows) or expert_ids.shape != (len(rows),):
            raise RowsError(f"{len(rows)} rows for {expert_ids.size} expert numbers")
        experts = np.unique(expert_ids).tolist()
        if experts[0] < self.first or experts[-1] >= self.last:
            raise RowsError(f"expert numbers outside {self.first}-{self.last - 1}")
        with np.errstate(over="ignore", invalid="ignore"):  # as in ggml: absurd rows give infinities, not errors
            return self._outputs(rows, expert_ids, experts)

    def _outputs(self, rows: Float32Array | ByteArray, expert_ids: IntArray, experts: list[int]) -> Float32Array:
        gate_rows, up_rows = self._inputs(rows)
        outputs: Float32Array = np.empty((len(rows), self.n_embd), np.float32)
        for expert in experts:
            chosen = np.flatnonzero(expert_ids == expert)
            weights = self._weights(expert)
            activated = swiglu(gate_rows[chosen] @ weights.gate.T, up_rows[chosen] @ weights.up.T)
            outputs[chosen] = round_like_ggml(activated, self._down_type) @ weights.down.T
        return outputs

    def _inputs(self, rows: Float32Array | ByteArray) -> tuple[Float32Array, Float32Array]:
        """The rows as the gate product and as the up product take them: (m, n_embd) float32 each."""
        if rows.ndim == 2 and rows.dtype == np.float32 and rows.shape[1] == self.n_embd:
            gate_rows = round_like_ggml(rows.view(np.float32), self._gate_type)
            if self._gate_type == self._up_type:
                return gate_rows, gate_rows
            return gate_rows, round_like_ggml(rows.view(np.float32), self._up_type)
        block_type = self._layouts.get(rows.shape[1]) if rows.ndim == 2 and rows.dtype == np.uint8 else None
        if block_type is None:
            raise RowsError(f"rows of {rows.dtype} with shape {rows.shape} do not fit a hidden size of {self.n_embd}")
        hidden = dequantize_wire(rows.view(np.uint8), block_type)
        return hidden, hidden

    def _weights(self, expert: int) -> ExpertWeights:
        with self._lock:
            weights = self._cache.get(expert)
            if weights is None:
                weights = self._load(expert)
                self._remember(expert, weights)
            self._cache.move_to_end(expert)
            return weights

    def _load(self, expert: int) -> ExpertWeights:
        down = self._matrix("down", expert)
        if "gate_up" in self._slice.tensors:
            gate, up = np.split(self._matrix("gate_up", expert), 2)
            return ExpertWeights(gate, up, down)
        return ExpertWeights(self._matrix("gate", expert), self._matrix("up", expert), down)

    def _matrix(self, role: Role, expert: int) -> Float32Array:
        """One expert's weights, (n_out, n_in) float32."""
        kind, (n_in, n_out, _), data = self._slice.tensors[role]
        matrix = dequantize(data[expert - self.first].reshape(n_out, -1), GgmlType(kind))
        return np.asarray(matrix, np.float32).reshape(n_out, n_in)

    def _remember(self, expert: int, weights: ExpertWeights) -> None:
        self._cache[expert] = weights
        self._cached_bytes += weights.size_bytes
        while self._cached_bytes > self._cache_bytes and len(self._cache) > 1:
            _, oldest = self._cache.popitem(last=False)
            self._cached_bytes -= oldest.size_bytes


def swiglu(gate: Float32Array, up: Float32Array) -> Float32Array:
    """silu(gate) * up, element by element."""
    # exp overflows to infinity for gate < -88, and x / inf is the -0.0 that silu tends to.
    return np.asarray(gate / (np.float32(1) + np.exp(-gate)) * up, np.float32)


def round_like_ggml(values: Float32Array, weight_type: GgmlType) -> Float32Array:
    """`values` (m, n) float32 as ggml's product with weights of this type sees them, again float32.

    Source: ggml 0.25.3 `quantize_row_q8_K_ref` and `quantize_row_q8_0` (x86), and the conversions of half floats.
    """
    if weight_type == GgmlType.F32:
        return values
    if weight_type == GgmlType.F16:
        return values.astype(np.float16).astype(np.float32)
    if weight_type == GgmlType.BF16:
        bits = values.view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)).view(np.float32)
    if weight_type in BLOCK_32_TYPES:
        return _round_blocks_of_32(values)
    return _round_blocks_of_256(values)


def _round_blocks_of_32(values: Float32Array) -> Float32Array:
    blocks = values.reshape(-1, 32)
    largest = np.abs(blocks).max(axis=1, keepdims=True)
    inverse = np.divide(np.float32(127), largest, out=np.zeros_like(largest), where=largest > 0)
    scales = (largest / np.float32(127)).astype(np.float16).astype(np.float32)
    rounded: Float32Array = (np.rint(blocks * inverse) * scales).reshape(values.shape)
    return rounded


def _round_blocks_of_256(values: Float32Array) -> Float32Array:
    blocks = values.reshape(-1, 256)
    # The value of largest magnitude, with its sign, becomes -127.
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=1)[:, None], axis=1)
    inverse = np.divide(np.float32(-127), largest, out=np.zeros_like(largest), where=largest != 0)
    scales = np.divide(np.float32(1), inverse, out=np.zeros_like(inverse), where=inverse != 0)
    rounded: Float32Array = (np.minimum(np.rint(blocks * inverse), 127) * scales).reshape(values.shape)
    return rounded


def _q8_layouts(n_embd: int) -> dict[int, int]:
    """Bytes per wire row -> block type, for the layouts that fit this hidden size."""
    layouts = {}
    for block_type, row_type in ROW_TYPES.items():
        with contextlib.suppress(RowsError):
            layouts[wire_row_bytes(row_type, n_embd, block_type)] = block_type
    return layouts


def _checked_type(role: str, ggml_type: int) -> GgmlType:
    kind = next((kind for kind in GgmlType if kind == ggml_type), None)
    if kind is None or not _can_dequantize(kind):
        raise UnknownType(
            f"the {role} tensor has ggml type {ggml_type}, which this version of gguf cannot dequantise: "
            "use the ggml kernel"
        )
    return kind


def _can_dequantize(kind: GgmlType) -> bool:
    try:
        dequantize(np.zeros((1, GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
    except NotImplementedError:
        return False
    return True


def computable_types() -> frozenset[str]:
    """Names of the ggml types that this kernel computes: those that `gguf` dequantises."""
    return frozenset(kind.name for kind in GgmlType if _can_dequantize(kind))
