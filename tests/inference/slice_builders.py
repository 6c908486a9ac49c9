"""Small slices in memory, with random weights: no file, any type that `gguf` can quantise."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
from gguf.constants import GGMLQuantizationType as Type
from gguf.quants import quantize

from inference.gguf_index import Role
from inference.slice_file import SliceFile, SliceTensor

BUILD = "ab" * 16
N_EMBD, N_FF, LAYER, FIRST, EXPERTS = 256, 64, 2, 5, 3


def random_rows(count: int, n_embd: int = N_EMBD, seed: int = 1) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((count, n_embd)).astype(np.float32)


def packed(seed: int, n_out: int, n_in: int, kind: Type = Type.Q8_0) -> SliceTensor:
    values = np.random.default_rng(seed).standard_normal((EXPERTS, n_out, n_in)).astype(np.float32) / 8
    return SliceTensor(int(kind), (n_in, n_out, EXPERTS), aligned(quantize(values, kind).view(np.uint8)))


def aligned(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """(EXPERTS, bytes) at an address that ggml takes, as in a mapped slice."""
    memory = np.empty(data.size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    memory[start : start + data.size] = data.reshape(-1)
    return memory[start : start + data.size].reshape(EXPERTS, -1)


def built_slice(*, merged: bool = False, kind: Type = Type.Q8_0) -> SliceFile:
    """Experts 5, 6, 7 of layer 2."""
    gate, up, down = packed(10, N_FF, N_EMBD, kind), packed(11, N_FF, N_EMBD, kind), packed(12, N_EMBD, N_FF, kind)
    if merged:
        both = aligned(np.concatenate([gate.data, up.data], axis=1))
        tensors: dict[Role, SliceTensor] = {
            "gate_up": SliceTensor(int(kind), (N_EMBD, 2 * N_FF, EXPERTS), both),
            "down": down,
        }
    else:
        tensors = {"gate": gate, "up": up, "down": down}
    return SliceFile(
        path=Path("in-memory"),
        build=BUILD,
        layer=LAYER,
        first=FIRST,
        last=FIRST + EXPERTS,
        architecture="qwen3moe",
        activation="swiglu",
        n_embd=N_EMBD,
        n_ff=N_FF,
        merged=merged,
        tensors=tensors,
    )
