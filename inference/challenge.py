"""Challenges: unpredictable rows whose answers the backbone can check, because it holds every expert itself.

Same kernel class: the answer must have the same bits. Other classes add floats in another order and, with quantised
rows, round some integers the other way: measured normalised error of honest rows is 2e-7 in the median and up to 3e-3
where an int8 rounding flips (design.md section 7), so a row passes below `ROW_ERROR_LIMIT`.

This module knows weights and rows; it knows nothing of sockets or of the market.
"""

import secrets

import numpy as np
import numpy.typing as npt

from inference.gguf_index import ExpertTensor, LayerExperts, ModelIndex
from inference.kernel import CpuRuntime, ExpertMatmul, WeightMatrix
from inference.rows import Float32Array, IntArray

ROW_ERROR_LIMIT = 2e-2


class ExpertOracle:
    """The experts of a model file, mapped: computes what a worker should have answered. One thread at a time."""

    def __init__(self, index: ModelIndex, runtime: CpuRuntime) -> None:
        self._index = index
        self._runtime = runtime
        self._files = {path: np.memmap(path, np.uint8, "r") for path in index.files}
        self._matmuls: dict[int, ExpertMatmul] = {}

    def compute(self, layer: int, rows: Float32Array, expert_ids: IntArray) -> Float32Array:
        """rows (m, n_embd) float32, expert_ids (m,) -> (m, n_embd) float32."""
        return self._matmul(layer).compute(rows, expert_ids)

    def close(self) -> None:
        for matmul in self._matmuls.values():
            matmul.close()
        self._matmuls.clear()
        self._runtime.close()

    def _matmul(self, layer: int) -> ExpertMatmul:
        found = self._matmuls.get(layer)
        if found is None:
            matrices = [self._matrix(tensor) for tensor in self._layer(layer).tensors]
            gate, up, down = matrices if len(matrices) == 3 else (matrices[0], None, matrices[1])
            found = self._matmuls[layer] = ExpertMatmul(self._runtime, gate, up, down)
        return found

    def _layer(self, layer: int) -> LayerExperts:
        return self._index.layers[layer]

    def _matrix(self, tensor: ExpertTensor) -> WeightMatrix:
        address = self._files[tensor.file].ctypes.data + tensor.offset
        return WeightMatrix(address, tensor.ggml_type, tensor.n_in, tensor.n_out, tensor.experts)


def challenge_rows(first: int, last: int, n_embd: int) -> tuple[Float32Array, npt.NDArray[np.uint16]]:
    """Random rows, one per expert of [first, last): (m, n_embd) float32 and pairs (m, 2) uint16 of (row, expert).

    The seed comes from the operating system, so no worker can prepare its answers.
    """
    random = np.random.default_rng(secrets.randbits(128))
    count = last - first
    rows = random.standard_normal((count, n_embd), dtype=np.float32)
    pairs = np.stack([np.arange(count), np.arange(first, last)], axis=1).astype(np.uint16)
    return rows, pairs


def row_errors(answer: Float32Array, expected: Float32Array) -> npt.NDArray[np.float64]:
    """(m,) normalised squared error per row: |answer - expected|^2 / |expected|^2; infinite where not finite."""
    difference = np.square(answer.astype(np.float64) - expected).sum(axis=1)
    scale = np.square(expected.astype(np.float64)).sum(axis=1)
    errors: npt.NDArray[np.float64] = difference / np.maximum(scale, np.finfo(np.float64).tiny)
    return np.where(np.isfinite(errors), errors, np.inf)


def passes(answer: Float32Array, expected: Float32Array, *, same_class: bool) -> bool:
    """Whether an answer to a challenge is right: bit-equal in the same kernel class, else within the row limit."""
    if answer.shape != expected.shape:
        return False
    if same_class:
        return np.array_equal(answer.view(np.uint32), expected.view(np.uint32))
    return bool((row_errors(answer, expected) <= ROW_ERROR_LIMIT).all())
