"""Malformed model files, slices and manifests against everything of ours that reads them."""

import json
import random
import shutil
import struct
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from inference.errors import GGUFError
from inference.gguf_header import SCALAR_FORMATS, TYPE_ARRAY, TYPE_STRING, TYPE_UINT64, encode_header
from inference.gguf_index import open_index
from inference.hostile import mutations
from inference.hostile.confined import Reader
from inference.slice_file import SliceFile
from inference.slices import SliceManifest, plan_slice, slice_manifest
from inference.stage_file import open_stages

ARCHITECTURE = "qwen35moe"
LAYERS, EXPERTS, WIDTH = 2, 4, 32
Q8_0, Q8_0_BLOCK_BYTES = 8, 34
# Layers and ranges of a file that are planned as slices: a server does so for what a node asks.
PLANNED_LAYERS = 2
KEYS = ("general.architecture", "general.alignment", "general.name", "split.count", "split.no", "split.tensors.count",
        *(f"{ARCHITECTURE}.{name}" for name in ("block_count", "nextn_predict_layers", "embedding_length",
                                               "expert_count", "expert_used_count", "swiglu_clamp_exp",
                                               "full_attention_interval", "attention.recurrent_layers", "vocab_size")),
        *(f"expertswarm.{name}" for name in ("format", "build", "layer", "first", "last", "n_embd", "n_ff",
                                            "activation")))  # fmt: skip


def model_bytes(changes: dict[str, int | str] | None = None) -> bytes:
    """A small valid model, as `open_index` takes it, with some metadata changed."""
    metadata: dict[str, int | str] = {
        "general.architecture": ARCHITECTURE,
        "general.alignment": 32,
        "general.name": "tiny",
        f"{ARCHITECTURE}.block_count": LAYERS,
        f"{ARCHITECTURE}.embedding_length": WIDTH,
        f"{ARCHITECTURE}.expert_count": EXPERTS,
        f"{ARCHITECTURE}.expert_used_count": 2,
        f"{ARCHITECTURE}.full_attention_interval": 1,
        **(changes or {}),
    }
    size = WIDTH * EXPERTS * Q8_0_BLOCK_BYTES
    tensors: list[tuple[str, tuple[int, ...], int, int]] = [
        (f"blk.{layer}.ffn_{role}_exps.weight", (WIDTH, WIDTH, EXPERTS), Q8_0, size)
        for layer in range(LAYERS)
        for role in ("gate", "up", "down")
    ]
    tensors.append(("token_embd.weight", (WIDTH, WIDTH * EXPERTS), Q8_0, size))
    return encode_header(metadata, tensors) + bytes(range(256)) * (len(tensors) * size // 256)


def odd_header(dice: random.Random) -> bytes:
    """A GGUF by hand: keys that readers ask for with values of every type, tensors of odd shapes and places."""
    keys, tensors = dice.randrange(12), dice.randrange(8)
    counts = [number if dice.random() < 0.9 else _edge(dice, 64) for number in (tensors, keys)]
    parts = [b"GGUF", struct.pack("<IQQ", dice.choice((3, 3, 3, 2, 1, 0, 4, 2**31)), *counts)]
    parts += [_text(dice, dice.choice(KEYS)) + _value(dice, 0) for _ in range(keys)]
    parts += [_tensor(dice) for _ in range(tensors)]
    header = b"".join(parts)
    return header + bytes(dice.choice((0, 32, 4096)))


def _edge(dice: random.Random, bits: int) -> int:
    return dice.choice(mutations.EDGES) & (1 << bits) - 1


def _text(dice: random.Random, text: str) -> bytes:
    encoded = text.encode("utf-8", "surrogatepass")
    size = len(encoded) if dice.random() < 0.97 else _edge(dice, 64)
    return struct.pack("<Q", size) + encoded


def _value(dice: random.Random, depth: int) -> bytes:
    kind = dice.choice((*SCALAR_FORMATS, TYPE_STRING, TYPE_STRING, TYPE_ARRAY, TYPE_UINT64, 13, 255))
    return struct.pack("<I", kind) + _payload(dice, kind, depth)


def _payload(dice: random.Random, kind: int, depth: int) -> bytes:
    if kind == TYPE_STRING:
        return _text(dice, dice.choice((ARCHITECTURE, mutations.odd_text(dice))))
    if kind == TYPE_ARRAY:
        element = dice.choice((*SCALAR_FORMATS, TYPE_STRING, TYPE_ARRAY))
        count = dice.choice((0, 1, 3, 3, _edge(dice, 64)))
        filled = min(count, 4) if depth < 3 else 0
        return struct.pack("<IQ", element, count) + b"".join(_payload(dice, element, depth + 1) for _ in range(filled))
    if kind in SCALAR_FORMATS:
        size = struct.calcsize(SCALAR_FORMATS[kind])
        return dice.choice((2, 4, 32, _edge(dice, 8 * size))).to_bytes(8, "little")[:size]
    return dice.randbytes(4)


def _tensor(dice: random.Random) -> bytes:
    role = dice.choice(("gate", "up", "down", "gate_up"))
    name = dice.choice((f"blk.{dice.choice((0, 1, 70000))}.ffn_{role}_exps.weight", mutations.odd_text(dice)))
    shape = [dice.choice((1, EXPERTS, WIDTH, WIDTH, _edge(dice, 64))) for _ in range(dice.choice((0, 1, 3, 3, 3, 5)))]
    place = struct.pack("<IQ", dice.choice((0, Q8_0, Q8_0, 99)), dice.choice((0, 32, _edge(dice, 64))))
    return _text(dice, name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape) + place


class GgufFiles(Reader):
    """Writes each case to a file and reads it as the server reads a model, and as a worker reads slice and manifest."""

    refusals = (GGUFError,)

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="hostile-"))
        self._path = self._folder / "case.gguf"
        self._model = model_bytes()
        self._path.write_bytes(self._model)
        plan = plan_slice(open_index(self._path), 0, 1, 3)
        self._slice = plan.read(0, plan.size)
        self._manifest: dict[str, Any] = asdict(slice_manifest(plan))

    def make(self, dice: random.Random) -> tuple[str, bytes]:
        way = dice.random()
        if way < 0.1:
            return "manifest", mutations.odd_json(dice, self._manifest)
        if way < 0.2:
            key = dice.choice(KEYS)
            value = _edge(dice, 32 if key.startswith("general.") else 64) if dice.random() < 0.8 else ARCHITECTURE
            return "gguf", model_bytes({key: value})
        if way < 0.4:
            return "gguf", odd_header(dice)
        sample = self._model if way < 0.75 else self._slice
        if way > 0.97:
            return "gguf", mutations.arbitrary(dice)
        # Their headers are what matters; the rest would take most of the hits.
        head = dice.choice((64, 512, 1024))
        return "gguf", mutations.mutated(dice, sample[:head]) + sample[head:]

    def read(self, case: tuple[str, bytes]) -> None:
        kind, data = case
        if kind == "manifest":
            SliceManifest.from_json(data)
            return
        self._path.write_bytes(data)
        try:
            index = open_index(self._path)
            for layer in list(index.layers)[:PLANNED_LAYERS]:
                json.dumps([index.name, index.fingerprint, index.offered_layers])
                plan = plan_slice(index, layer, 0, 1)
                plan.read(0, min(plan.size, 4096))
            stages = open_stages(index)
            plan = stages.plan(0, 1, without_experts=bool(len(data) % 2))
            json.dumps([stages.unit_bytes, stages.unit_flops, stages.vocabulary_size])
            plan.read(0, min(plan.size, 4096))
        except GGUFError:
            # It may be a slice: those are files of experts only.
            with SliceFile.open(self._path) as held:
                assert all(len(tensor.data) == held.last - held.first for tensor in held.tensors.values())

    def close(self) -> None:
        shutil.rmtree(self._folder)
