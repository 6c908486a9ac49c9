"""One slice made on the spot, of any shape and types, without a model around it: for tests of kernels."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter

from inference.gguf_index import Role
from inference.slice_file import FORMAT_VERSION
from inference.synthetic_weights import generator, random_matrix


@dataclass(frozen=True)
class SliceShape:
    """`types`: ggml type numbers; with `merged`, gate and up share a tensor of the gate's type."""

    n_embd: int
    n_ff: int
    experts: int
    types: Mapping[Role, int] = field(default_factory=lambda: {"gate": 12, "up": 12, "down": 12})
    merged: bool = False
    layer: int = 3
    first: int = 5


def write_synthetic_slice(path: Path, shape: SliceShape, seed: int = 0) -> Path:
    """Random weights of deviation 1/sqrt(width), so that rows keep their size."""
    writer = GGUFWriter(path, "qwen35moe")
    writer.add_string("expertswarm.build", "ab" * 16)
    writer.add_string("expertswarm.activation", "swiglu")
    last = shape.first + shape.experts
    numbers = {"format": FORMAT_VERSION, "layer": shape.layer, "first": shape.first, "last": last}
    for key, value in {**numbers, "n_embd": shape.n_embd, "n_ff": shape.n_ff}.items():
        writer.add_uint32(f"expertswarm.{key}", value)
    for role, data in _tensors(shape, seed):
        kind = shape.types["gate" if role == "gate_up" else role]
        name = f"blk.{shape.layer}.ffn_{role}_exps.weight"
        writer.add_tensor(name, data, raw_dtype=GGMLQuantizationType(kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _tensors(shape: SliceShape, seed: int) -> list[tuple[Role, np.ndarray]]:
    def matrix(role: Role, n_out: int, n_in: int) -> np.ndarray:
        return random_matrix(generator(seed, role), (shape.experts, n_out, n_in), shape.types[role])

    gate, up = matrix("gate", shape.n_ff, shape.n_embd), matrix("up", shape.n_ff, shape.n_embd)
    down = matrix("down", shape.n_embd, shape.n_ff)
    if shape.merged:
        return [("gate_up", np.concatenate([gate, up], axis=1)), ("down", down)]
    return [("gate", gate), ("up", up), ("down", down)]
