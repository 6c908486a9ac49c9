"""Hidden-state rows on the wire: plain float32, or the very blocks that the expert kernel's dot product takes.

Such a row is exact: the backbone quantises a row once with the kernel's own `from_float` and the worker feeds the
blocks to `mul_mat_id` as they are. Two block layouts exist (ggml 0.25.3, `src/ggml-common.h`):

- Q8_K (row type `q8`): 256 values = float32 scale, 256 int8, 16 int16 sums. The sums follow from the int8 and stay off
  the wire (292 -> 260 bytes per 256 values).
- Q8_0 (row type `q8_0`): 32 values = float16 scale, 32 int8 (34 bytes), sent as it is.

This module knows arrays and bytes; it knows nothing of ggml, sockets or experts.
"""

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from inference.errors import InferenceError

Float32Array = npt.NDArray[np.float32]
ByteArray = npt.NDArray[np.uint8]
IntArray = npt.NDArray[np.int32]

Q8_K_VALUES, Q8_K_BYTES, Q8_K_WIRE_BYTES = 256, 292, 260
Q8_0_VALUES, Q8_0_BYTES = 32, 34

# ggml type numbers of the two block layouts (ggml.h, enum ggml_type)
TYPE_Q8_0, TYPE_Q8_K = 8, 15


class RowsError(InferenceError):
    """Rows whose size does not fit the layer that they are meant for."""

    code = "bad_rows"


class RowType(IntEnum):
    """The `row dtype` byte of a frame header."""

    F32 = 0
    Q8 = 1
    Q8_0 = 2


ROW_TYPES = {TYPE_Q8_K: RowType.Q8, TYPE_Q8_0: RowType.Q8_0}
"""How rows of a layer are written whose experts take blocks of this ggml type."""


def wire_row_bytes(row_type: RowType, n_embd: int, block_type: int | None) -> int:
    """Bytes of one row of `n_embd` values on the wire; raises RowsError when the layer has no exact form of the type.

    block_type: what the layer's experts take, None where nothing but float32 is exact.
    """
    if row_type is RowType.F32:
        return 4 * n_embd
    unit, values = (Q8_K_WIRE_BYTES, Q8_K_VALUES) if row_type is RowType.Q8 else (Q8_0_BYTES, Q8_0_VALUES)
    if block_type is not None and ROW_TYPES.get(block_type) is row_type and n_embd % values == 0:
        return n_embd // values * unit
    raise RowsError(f"rows of {n_embd} values have no exact q8 form for this layer; send float32 rows")


def strip_sums(blocks: ByteArray) -> ByteArray:
    """Q8_K blocks (m, n * 292) as the kernel makes them -> wire rows (m, n * 260)."""
    count = len(blocks)
    return blocks.reshape(count, -1, Q8_K_BYTES)[:, :, :Q8_K_WIRE_BYTES].reshape(count, -1)


def restore_sums(wire: ByteArray, blocks: ByteArray) -> None:
    """Wire rows (m, n * 260) -> Q8_K blocks (m, n * 292), written into `blocks`."""
    count = len(wire)
    source = wire.reshape(count, -1, Q8_K_WIRE_BYTES)
    target = blocks.reshape(count, -1, Q8_K_BYTES)
    target[:, :, :Q8_K_WIRE_BYTES] = source
    values = source[:, :, 4:].view(np.int8).reshape(count, source.shape[1], 16, 16)
    target[:, :, Q8_K_WIRE_BYTES:] = values.sum(axis=3, dtype=np.int16).view(np.uint8).reshape(count, -1, 32)


def dequantize_wire(wire: ByteArray, block_type: int) -> Float32Array:
    """Wire q8 rows -> (m, n_embd) float32 (scale x integer), for kernels without typed rows."""
    count = len(wire)
    if block_type == TYPE_Q8_K:
        blocks = wire.reshape(count, -1, Q8_K_WIRE_BYTES)
        scales = np.ascontiguousarray(blocks[:, :, :4]).view("<f4")
        values = blocks[:, :, 4:].view(np.int8)
    else:
        blocks = wire.reshape(count, -1, Q8_0_BYTES)
        scales = np.ascontiguousarray(blocks[:, :, :2]).view("<f2").astype(np.float32)
        values = blocks[:, :, 2:].view(np.int8)
    rows: Float32Array = (values.astype(np.float32) * scales).reshape(count, -1)
    return rows


def partial_sums(
    values: Float32Array,
    row_of_pair: npt.NDArray[np.integer],
    weights: Float32Array,
    rows: int,
    kind: type[np.float32] | type[np.float16] = np.float32,
) -> npt.NDArray[np.float32] | npt.NDArray[np.float16]:
    """(rows, n_embd): per row the values of its pairs times their weights, added in float32 in the pairs' order.

    values (pairs, n_embd) float32; row_of_pair (pairs,); weights (pairs,). Half precision only at the end; what does
    not fit becomes infinite, which a receiver refuses.
    """
    weighted = values * weights[:, None]
    sums: Float32Array = np.zeros((rows, values.shape[1]), np.float32)
    np.add.at(sums, row_of_pair, weighted)
    if kind is np.float32:
        return sums
    with np.errstate(over="ignore"):
        return sums.astype(np.float16)


def is_finite(values: Float32Array | npt.NDArray[np.float16]) -> bool:
    """Whether no value is NaN or infinite. A sum is quicker than a look at each: it is finite only if all of them are;
    where it is not, large finite values may have added up, so each is looked at."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = values.sum(dtype=np.float32)
    return bool(np.isfinite(total)) or bool(np.isfinite(values).all())
