"""Files that only tests need: crafted headers, tiny MoE files; and what llama.cpp itself computes from a model.

Real models for llama.cpp come from `inference.synthetic`. Everything here is written with `struct` or `gguf`, not with
our own writer, so that it can serve as an oracle.
"""

import ctypes
import struct
from collections.abc import Sequence
from pathlib import Path

import gguf
import llama_cpp
import numpy as np
import numpy.typing as npt

from inference.synthetic import DEMO_MODEL

__all__ = ["DEMO_MODEL", "gguf_bytes", "logits", "tiny_moe"]

Pair = tuple[str, int, bytes]


@llama_cpp.llama_log_callback
def _quiet(level: int, text: bytes, data: ctypes.c_void_p) -> None:
    """Keeps llama.cpp's chatter out of the test output."""


def text(value: str | bytes) -> bytes:
    encoded = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(encoded)) + encoded


def text_pair(key: str, value: str) -> Pair:
    return key, 8, text(value)


def number_pair(key: str, value: int) -> Pair:
    return key, 4, struct.pack("<I", value)


def gguf_bytes(
    pairs: Sequence[Pair] = (),
    tensors: Sequence[tuple[str, tuple[int, ...], int, int]] = (),
    version: int = 3,
    data: bytes = b"",
    counts: tuple[int, int] | None = None,
) -> bytes:
    """A GGUF by hand: `pairs` (key, value type, value bytes), `tensors` (name, shape, type, offset), aligned `data`.

    `counts` (tensors, keys) lie where they are given.
    """
    tensor_count, key_count = counts or (len(tensors), len(pairs))
    parts = [b"GGUF", struct.pack("<IQQ", version, tensor_count, key_count)]
    parts += [text(key) + struct.pack("<I", kind) + value for key, kind, value in pairs]
    for name, shape, kind, offset in tensors:
        parts.append(text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset))
    header = b"".join(parts)
    return header.ljust(-(-len(header) // 32) * 32, b"\0") + data


def tiny_moe(
    path: Path,
    architecture: str = "qwen3moe",
    layers: int = 3,
    dense: int = 0,
    nextn: int = 0,
    experts: int = 4,
    alignment: int | None = None,
    extra: dict[str, int | list[float]] | None = None,
    omit: Sequence[str] = (),
    suffixes: Sequence[str] = (),
) -> Path:
    """An F32 MoE file of no use to llama.cpp: n_embd 32, n_ff 8; `dense` leading layers and `nextn` trailing ones.

    `extra`: further `<architecture>.*` metadata; `omit`: tensors left out; `suffixes` ("bias", "scale") added per role.
    """
    writer = gguf.GGUFWriter(str(path), architecture)
    numbers = {
        "block_count": layers + nextn,
        "embedding_length": 32,
        "expert_count": experts,
        "expert_used_count": 2,
        **({"nextn_predict_layers": nextn} if nextn else {}),
        **(extra or {}),
    }
    for key, value in numbers.items():
        if isinstance(value, list):
            writer.add_array(f"{architecture}.{key}", value)
        else:
            writer.add_uint32(f"{architecture}.{key}", value)
    if alignment is not None:
        writer.add_custom_alignment(alignment)
    random = np.random.default_rng(1)
    writer.add_tensor("token_embd.weight", random.standard_normal((16, 32), np.float32))
    for layer in range(layers + nextn):
        widths = {"gate": (8, 32), "up": (8, 32), "down": (32, 8)}
        for role, shape in widths.items():
            name = f"blk.{layer}.ffn_{role}" + ("" if layer < dense else "_exps")
            if f"{name}.weight" in omit:
                continue
            whole = shape if layer < dense else (experts, *shape)
            writer.add_tensor(f"{name}.weight", random.standard_normal(whole, np.float32))
            for suffix in suffixes:
                writer.add_tensor(f"{name}.{suffix}", random.standard_normal((experts, shape[0]), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def logits(path: Path, prompt: str = "In the beginning", generated: int = 4) -> npt.NDArray[np.float32]:
    """(tokens, vocabulary) float32 of a prompt and a few greedy tokens, by llama.cpp itself."""
    llama_cpp.llama_log_set(_quiet, ctypes.c_void_p(0))
    model = llama_cpp.Llama(
        str(path), n_ctx=64, n_threads=2, n_threads_batch=2, logits_all=True, verbose=True, use_mmap=True
    )
    try:
        model.eval(model.tokenize(prompt.encode()))
        for _ in range(generated):
            model.eval([int(np.argmax(model.scores[model.n_tokens - 1]))])
        return np.array(model.scores[: model.n_tokens], np.float32)
    finally:
        model.close()
