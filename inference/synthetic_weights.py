"""Random weights in any ggml type: finite, of a sane scale, and the same for the same seed and tensor name."""

import zlib

import numpy as np
import numpy.typing as npt

from inference import ggml
from inference.gguf_header import row_bytes

F32, Q4_K, Q5_K, Q6_K = 0, 12, 13, 14
BLOCK_VALUES = 256
# Random bytes are valid blocks of these types; only the half-precision scales are set. A value of Q4_K and Q5_K is
# d * scale * q - dmin * minimum, q in 0..15 (0..31), with two random 6-bit numbers: dmin = 7.5 d (15.5 d) centres it.
# A value of Q6_K is d * scale * (q - 32) with q in 0..63 and a random int8. The standard deviations, in units of d,
# follow from the moments of the uniform distributions. Layouts: ggml-common.h of ggml 0.25.3.
DEVIATION_PER_D = {Q4_K: 258.3, Q5_K: 526.9, Q6_K: 1365.7}
DMIN_PER_D = {Q4_K: 7.5, Q5_K: 15.5}

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


def generator(seed: int, name: str) -> np.random.Generator:
    """The random stream of one tensor; independent of the order in which tensors are made."""
    return np.random.Generator(np.random.SFC64([seed, zlib.crc32(name.encode())]))


def quantize(values: Floats, ggml_type: int) -> Bytes:
    """`values` (..., n_in) float32 in the bytes of `ggml_type`: (..., row bytes) uint8, by ggml's own quantiser.

    Raises UnknownType for a type that is not known, NotGGUF where n_in is no multiple of its block.
    """
    n_in = values.shape[-1]
    source = np.ascontiguousarray(values, np.float32)
    target = np.zeros((*values.shape[:-1], row_bytes(ggml_type, n_in)), np.uint8)
    if ggml_type == F32:
        return source.view(np.uint8).reshape(target.shape)
    ggml.load().quantize_chunk(ggml_type, source.ctypes.data, target.ctypes.data, 0, source.size // n_in, n_in, None)
    return target


def random_matrix(random: np.random.Generator, shape: tuple[int, ...], ggml_type: int) -> Bytes:
    """Weights of zero mean and deviation 1/sqrt(n_in) for `shape` (..., n_in), so that activations keep their size.

    Q4_K, Q5_K and Q6_K are made of random blocks (1 GB/s on one core), every other type by quantising (20 MB/s).
    """
    n_in = shape[-1]
    if ggml_type in DEVIATION_PER_D:
        blocks = random_blocks(random, int(np.prod(shape)) // BLOCK_VALUES, n_in**-0.5, ggml_type)
        return blocks.reshape(*shape[:-1], row_bytes(ggml_type, n_in))
    return quantize(random.standard_normal(shape, np.float32) * np.float32(n_in**-0.5), ggml_type)


def random_blocks(random: np.random.Generator, blocks: int, deviation: float, ggml_type: int) -> Bytes:
    """(blocks, block bytes) uint8: random quants and scales; `d` and `dmin` make the values' deviation."""
    size = row_bytes(ggml_type, BLOCK_VALUES)
    words = random.integers(0, 1 << 64, size=-(-blocks * size // 8), dtype=np.uint64)
    data = words.view(np.uint8)[: blocks * size].reshape(blocks, size)
    d = np.float32(deviation / DEVIATION_PER_D[ggml_type]) * random.uniform(0.5, 1.5, blocks).astype(np.float32)
    if ggml_type == Q6_K:
        data[:, -2:] = d.astype("<f2").view(np.uint8).reshape(blocks, 2)
    else:
        scales = np.stack([d, d * np.float32(DMIN_PER_D[ggml_type])], axis=1).astype("<f2")
        data[:, :4] = scales.view(np.uint8)
    return data
