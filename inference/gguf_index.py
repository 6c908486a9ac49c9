"""What a model file holds: its MoE layers, where every expert's bytes lie, and the fingerprint of the build.

Knows one GGUF or a split set; knows nothing of computing, claims or sockets. Reads headers, and of the tensor data
only the few samples that go into the fingerprint.
"""

import hashlib
import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from inference.errors import DenseModel, FileUnreadable, NotGGUF, Truncated
from inference.gguf_header import Header, MetadataValue, TensorInfo, open_regular, row_bytes, type_name
from inference.gguf_split import read_parts

Role = Literal["gate", "up", "gate_up", "down"]

EXPERT_TENSOR = re.compile(r"blk\.(0|[1-9]\d{0,4})\.ffn_(gate|up|gate_up|down)_exps\.(weight|bias|scale)")
SAMPLES_PER_TENSOR = 2
SAMPLE_BYTES = 256
FINGERPRINT_CHARACTERS = 32

# Architectures of llama.cpp whose routed experts are `down(silu(gate(x)) * up(x))` with the router's weights applied
# afterwards: what a worker computes. Read from the calls of `build_moe_ffn` in llama.cpp's src/models (the source that
# llama-cpp-python 0.3.36 carries). Left out on purpose: gpt-oss and minimax-m3 (SWIGLU_OAI), gemma4, grok and bert
# (GELU), nemotron_h (squared ReLU), smallthinker (ReLU), kimi-k3 (SITU), llama4 (weights applied before the experts),
# grovemoe (expert groups), maple, deepseek4, glm5-next, hy_v4, dflash (clamped SwiGLU). Those run on the backbone.
_SWIGLU_NAMES = """
afmoe arctic bailingmoe bailingmoe2 bailingmoe3 cohere2moe dbrx deepseek deepseek2 deepseek2-ocr deepseek32 dots1
dots3note ernie4_5-moe exaone-moe glm-dsa glm4moe granitemoe granitehybrid granite_swa hunyuan-moe hy_v3 jamba
kimi-linear laguna lfm2moe llada-moe llama mellum mimo2 minimax-01 minimax-m2 mistral3 mistral4 olmoe phimoe
qwen2moe qwen3moe qwen3next qwen3vlmoe qwen35moe qwen4exp rnd1 step35
"""
SWIGLU_ARCHITECTURES = frozenset(_SWIGLU_NAMES.split())

# Architectures with linear attention: every layer but each fourth (or as the file says) keeps a recurrent state.
RECURRENT_ARCHITECTURES = frozenset({"qwen35moe", "qwen3next"})
RECURRENT_INTERVAL = 4


@dataclass(frozen=True)
class ExpertTensor:
    """All experts of one role in one layer.

    `offset`: bytes from the start of `file`; `n_in`, `n_out`: width of one expert's input and output rows;
    expert `e` lies at `offset + e * expert_bytes`.
    """

    name: str
    role: Role
    layer: int
    file: Path
    offset: int
    ggml_type: int
    n_in: int
    n_out: int
    experts: int
    expert_bytes: int

    @property
    def type_name(self) -> str:
        return type_name(self.ggml_type)


@dataclass(frozen=True)
class LayerExperts:
    """The routed experts of one layer: tensors in the order gate, up, down or gate_up, down (up, down if ungated)."""

    layer: int
    experts: int
    tensors: tuple[ExpertTensor, ...]
    merged: bool
    has_bias: bool
    has_scale: bool
    expert_bytes: int

    @property
    def type_names(self) -> tuple[str, ...]:
        """The tensors' types in their order, such as ("Q4_K", "Q4_K", "Q6_K")."""
        return tuple(tensor.type_name for tensor in self.tensors)


@dataclass(frozen=True)
class ModelIndex:
    """One build. `layers` holds the MoE layers of the trunk only: experts of nextn/MTP blocks are never called by
    plain decoding. `total_bytes` and `routed_bytes` count tensor data, nextn blocks included in the first only.
    """

    path: Path
    files: tuple[Path, ...]
    name: str
    architecture: str
    trunk_layers: int
    nextn_layers: int
    n_embd: int
    n_ff: int
    experts_used: int
    experts_per_layer: int
    layers: dict[int, LayerExperts]
    total_bytes: int
    routed_bytes: int
    fingerprint: str
    clamped_layers: frozenset[int]
    recurrent_layers: frozenset[int]

    @cached_property
    def offered_layers(self) -> tuple[int, ...]:
        """Layers whose experts a worker can compute: plain SwiGLU over rows of n_embd, no bias, scale or clamp."""
        if self.architecture not in SWIGLU_ARCHITECTURES:
            return ()
        return tuple(layer for layer, experts in self.layers.items() if self._is_computable(experts))

    def _is_computable(self, experts: LayerExperts) -> bool:
        if experts.has_bias or experts.has_scale or experts.layer in self.clamped_layers:
            return False
        if experts.tensors[0].role not in ("gate", "gate_up"):
            return False
        return experts.tensors[0].n_in == experts.tensors[-1].n_out == self.n_embd

    @property
    def activation(self) -> str:
        """What stands between gate/up and down in the offered layers; empty where workers cannot compute it."""
        return "swiglu" if self.architecture in SWIGLU_ARCHITECTURES else ""


def open_index(path: Path) -> ModelIndex:
    """Index a GGUF, or a split set by the path of any of its parts. Raises GGUFError and its subclasses only."""
    parts = read_parts(path)
    first = parts[0][1]
    architecture = first.metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise NotGGUF(f"{path}: general.architecture is missing, so this is not a model")
    nextn = _number(path, first, f"{architecture}.nextn_predict_layers", 0)
    block_count = _number(path, first, f"{architecture}.block_count")
    if nextn > block_count:
        raise NotGGUF(f"{path}: {nextn} nextn_predict_layers in a block_count of {block_count}")
    trunk_layers = block_count - nextn
    layers = _collect_layers(parts, trunk_layers)
    if not layers:
        raise DenseModel(f"{path}: {architecture} without routed experts (a dense model), so there is nothing to share")
    experts = {layer.experts for layer in layers.values()}
    if experts != {expert_count := _number(path, first, f"{architecture}.expert_count", min(experts))}:
        raise NotGGUF(f"{path}: layers have {sorted(experts)} experts where the metadata say {expert_count}")
    name = first.metadata.get("general.name")
    files = tuple(file for file, _ in parts)
    tensors = [(file, tensor) for file, header in parts for tensor in header.tensors.values()]
    return ModelIndex(
        path=files[0],
        files=files,
        name=name if isinstance(name, str) and name else path.stem,
        architecture=architecture,
        trunk_layers=trunk_layers,
        nextn_layers=nextn,
        n_embd=_number(path, first, f"{architecture}.embedding_length"),
        n_ff=max(layer.tensors[-1].n_in for layer in layers.values()),
        experts_used=_number(path, first, f"{architecture}.expert_used_count"),
        experts_per_layer=expert_count,
        layers=layers,
        total_bytes=sum(tensor.size for _, tensor in tensors),
        routed_bytes=sum(layer.experts * layer.expert_bytes for layer in layers.values()),
        fingerprint=_fingerprint(parts, tensors),
        clamped_layers=_clamped(first.metadata.get(f"{architecture}.swiglu_clamp_exp"), layers),
        recurrent_layers=_recurrent(path, first, architecture, layers),
    )


def _number(path: Path, header: Header, key: str, default: int | None = None) -> int:
    """A whole number of the metadata; of a per-layer array its greatest element (as llama.cpp reserves by)."""
    value = header.metadata.get(key, default)
    if isinstance(value, tuple):
        value = max(value, default=None)
    if type(value) is not int or not 0 <= value < 1 << 31:
        raise NotGGUF(f"{path}: metadata key {key} is {'missing' if value is None else f'{value!r}'}")
    return value


def _clamped(value: MetadataValue | None, layers: Collection[int]) -> frozenset[int]:
    """Those of the layers with a SwiGLU limit, from a number for all or an array of one per layer; 0 means none."""

    def is_limited(layer: int) -> bool:
        limit = (value[layer] if layer < len(value) else None) if isinstance(value, tuple) else value
        return isinstance(limit, int | float) and limit > 0

    return frozenset(filter(is_limited, layers))


def _recurrent(path: Path, header: Header, architecture: str, layers: Collection[int]) -> frozenset[int]:
    """Those of the layers with a recurrent state in the place of attention over all tokens, as llama.cpp's loader
    finds them. Only layers whose tensors are there are looked at: a file may say that it has thousands of millions."""
    if architecture not in RECURRENT_ARCHITECTURES:
        return frozenset()
    given = header.metadata.get(f"{architecture}.attention.recurrent_layers")
    if isinstance(given, tuple) and len(given) > max(layers):
        return frozenset(layer for layer in layers if given[layer])
    interval = _number(path, header, f"{architecture}.full_attention_interval", RECURRENT_INTERVAL)
    return frozenset(layer for layer in layers if not interval or (layer + 1) % interval)


def _collect_layers(parts: Sequence[tuple[Path, Header]], trunk_layers: int) -> dict[int, LayerExperts]:
    weights: dict[int, dict[str, ExpertTensor]] = {}
    extras: dict[int, set[str]] = {}
    for file, header in parts:
        for name, info in header.tensors.items():
            match = EXPERT_TENSOR.fullmatch(name)
            if match is None or int(match[1]) >= trunk_layers:
                continue
            layer = int(match[1])
            if match[3] == "weight":
                weights.setdefault(layer, {})[match[2]] = _expert_tensor(file, info, layer, match[2])
            else:
                extras.setdefault(layer, set()).add(match[3])
    return {
        layer: _layer(parts[0][0], layer, by_role, extras.get(layer, set()))
        for layer, by_role in sorted(weights.items())
    }


def _expert_tensor(file: Path, info: TensorInfo, layer: int, role: str) -> ExpertTensor:
    if len(info.shape) != 3 or 0 in info.shape:
        raise NotGGUF(f"{file}: tensor {info.name} has shape {list(info.shape)}, not [n_in, n_out, experts]")
    n_in, n_out, experts = info.shape
    return ExpertTensor(
        name=info.name,
        role=role,  # type: ignore[arg-type]  # the pattern admits exactly the four roles
        layer=layer,
        file=file,
        offset=info.offset,
        ggml_type=info.ggml_type,
        n_in=n_in,
        n_out=n_out,
        experts=experts,
        expert_bytes=row_bytes(info.ggml_type, n_in) * n_out,
    )


def _layer(path: Path, layer: int, by_role: dict[str, ExpertTensor], extras: set[str]) -> LayerExperts:
    """Check that the tensors of one layer belong together. Raises NotGGUF."""
    merged = "gate_up" in by_role
    order = ("gate_up", "down") if merged else ("gate", "up", "down") if "gate" in by_role else ("up", "down")
    if set(by_role) != set(order):
        raise NotGGUF(f"{path}: layer {layer} has only {sorted(by_role)} of the expert tensors {list(order)}")
    tensors = tuple(by_role[role] for role in order)
    down = tensors[-1]
    width = 2 * down.n_in if merged else down.n_in
    if len({t.experts for t in tensors}) > 1 or len({t.n_in for t in tensors[:-1]}) > 1:
        raise NotGGUF(f"{path}: the expert tensors of layer {layer} differ in their shapes")
    if any(tensor.n_out != width for tensor in tensors[:-1]):
        raise NotGGUF(f"{path}: gate, up and down of layer {layer} do not fit together")
    return LayerExperts(
        layer=layer,
        experts=down.experts,
        tensors=tensors,
        merged=merged,
        has_bias="bias" in extras,
        has_scale="scale" in extras,
        expert_bytes=sum(tensor.expert_bytes for tensor in tensors),
    )


def _fingerprint(parts: Sequence[tuple[Path, Header]], tensors: list[tuple[Path, TensorInfo]]) -> str:
    """A digest over metadata, tensor names, shapes, types and a sample of the data, equal for a file and its split set.

    Keys and tensors are sorted and `split.*` keys and offsets left out, because splitting changes just these.
    """
    digest = hashlib.sha256(b"expertswarm fingerprint 1\n")
    entries = {key: value for _, header in parts for key, value in header.digests.items()}
    for key in sorted(entries):
        if not key.startswith("split."):
            digest.update(f"{key}\0".encode() + entries[key])
    by_file: dict[Path, dict[str, bytes]] = {
        file: _samples(file, [tensor for owner, tensor in tensors if owner == file]) for file, _ in parts
    }
    for file, tensor in sorted(tensors, key=lambda item: item[1].name):
        digest.update(f"{tensor.name}\0{tensor.shape}{tensor.ggml_type} {tensor.size}\n".encode())
        digest.update(by_file[file][tensor.name])
    return digest.hexdigest()[:FINGERPRINT_CHARACTERS]


def _samples(file: Path, tensors: list[TensorInfo]) -> dict[str, bytes]:
    """A few spans of every tensor, evenly spread; in file order, so that a disk need not seek back and forth."""
    found: dict[str, bytes] = {}
    try:
        with open_regular(file) as source:
            for tensor in sorted(tensors, key=lambda t: t.offset):
                spans = [_span(tensor, index) for index in range(SAMPLES_PER_TENSOR)]
                found[tensor.name] = b"".join(os.pread(source.fileno(), size, at) for at, size in spans)
                if len(found[tensor.name]) != sum(size for _, size in spans):
                    raise Truncated(f"{file}: truncated while it was read, in tensor {tensor.name}")
    except OSError as error:
        raise FileUnreadable(f"{file}: cannot be read: {error.strerror or error}") from error
    return found


def _span(tensor: TensorInfo, index: int) -> tuple[int, int]:
    """(file offset, size in bytes) of sample number `index`."""
    size = min(SAMPLE_BYTES, tensor.size)
    return tensor.offset + (2 * index + 1) * (tensor.size - size) // (2 * SAMPLES_PER_TENSOR), size
