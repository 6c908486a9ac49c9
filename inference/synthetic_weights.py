"""Random weights in any ggml type: finite, of a sane scale, and the same for the same seed and tensor name."""

import zlib

import numpy as np
import numpy.typing as npt

from inference import ggml
from inference.gguf_header import row_bytes

F32, Q4_K = 0, 12
Q4_K_BLOCK_VALUES, Q4_K_BLOCK_BYTES = 256, 144
# A Q4_K value is d * scale * q - dmin * minimum with q in 0..15 and two random 6-bit numbers. dmin = 7.5 d centres it,
# and its standard deviation is then 258 d (from the moments of the uniform distributions).
Q4_K_DEVIATION_PER_D = 258.0
Q4_K_DMIN_PER_D = 7.5

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

    Q4_K is made of random blocks (1 GB/s on one core), every other type by quantising (20 MB/s), so big files use Q4_K.
    """
    n_in = shape[-1]
    if ggml_type == Q4_K:
        blocks = random_q4_k_blocks(random, int(np.prod(shape)) // Q4_K_BLOCK_VALUES, n_in**-0.5)
        return blocks.reshape(*shape[:-1], row_bytes(Q4_K, n_in))
    return quantize(random.standard_normal(shape, np.float32) * np.float32(n_in**-0.5), ggml_type)


def random_q4_k_blocks(random: np.random.Generator, blocks: int, deviation: float) -> Bytes:
    """(blocks, 144) uint8: random quants and 6-bit scales, with `d` and `dmin` set so that values have `deviation`."""
    words = random.integers(0, 1 << 64, size=blocks * Q4_K_BLOCK_BYTES // 8, dtype=np.uint64)
    data = words.view(np.uint8).reshape(blocks, Q4_K_BLOCK_BYTES)
    d = np.float32(deviation / Q4_K_DEVIATION_PER_D) * random.uniform(0.5, 1.5, blocks).astype(np.float32)
    scales = np.stack([d, d * np.float32(Q4_K_DMIN_PER_D)], axis=1).astype("<f2")
    data[:, :4] = scales.view(np.uint8)
    return data
