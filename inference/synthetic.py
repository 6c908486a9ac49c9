"""Model files made on the spot, for tests, `bench overhead` and `verify`: small ones of several kinds, a 122B's.

llama.cpp loads and runs all of them but `sparse122b`. They borrow the demo model's tokenizer. Every builder returns
`path` at once when the file there was made by the same call, so callers may keep a folder of them.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from inference import synthetic_blocks as blocks
from inference.gguf_header import type_number
from inference.gguf_index import EXPERT_TENSOR
from inference.synthetic_blocks import Shape
from inference.synthetic_file import Kind, Recipe, Tensor, copied_metadata, split, write, write_sparse
from inference.synthetic_weights import Q4_K, Q6_K, quantize

__all__ = [
    "DEMO_MODEL",
    "SHAPE_122B",
    "Shape",
    "demo_variant",
    "full122b",
    "shape122b",
    "small_gpt_oss",
    "small_qwen3moe",
    "small_qwen35moe",
    "sparse122b",
    "split",
]

DEMO_MODEL = Path(__file__).resolve().parent.parent / "models" / "qwen35moe-demo-q4_k_m.gguf"
DEMO_VOCABULARY = 4096
MERGES_122B = 247_587
SHAPE_122B = Shape()
SMALL = Shape(
    layers=4,
    n_embd=256,
    n_ff=256,
    experts=16,
    experts_used=4,
    heads=4,
    head_size=64,
    key_groups=2,
    value_heads=4,
    state_size=64,
    vocabulary=DEMO_VOCABULARY,
)
ROLES = ("gate", "up", "down")


def shape122b(path: Path, layers: int = 2, seed: int = 0, shape: Shape = SHAPE_122B) -> Path:
    """`layers` layers of the 122B's real shape with random weights, 1.4 GB each; every 2nd (4th) is attention.

    The vocabulary is the demo's (4096 tokens). Other sizes for quick tests come in as `shape`.
    """
    interval = min(shape.attention_interval, layers)
    cut = replace(shape, layers=layers, attention_interval=interval, vocabulary=DEMO_VOCABULARY)
    return write_with_demo_tokenizer(hybrid(cut, seed), path)


def small_qwen35moe(path: Path, seed: int = 0, expert_type: str = "Q4_K", nextn: int = 0) -> Path:
    """A random qwen35moe of a few MB: 4 layers of 16 experts, top 4, and `nextn` MTP blocks behind them."""
    return shape122b(path, SMALL.layers, seed, replace(_typed(SMALL, expert_type), nextn=nextn))


def small_qwen3moe(path: Path, seed: int = 0, expert_type: str = "Q4_K") -> Path:
    """A random qwen3moe of 3 layers x 16 experts, top 4: attention only, no shared expert."""
    shape = replace(_typed(SMALL, expert_type), layers=3)
    recipe = attention_only("qwen3moe", shape, seed)
    for block in range(shape.layers):
        blocks.block_norms(recipe, block, shape.n_embd, "ffn_norm")
        blocks.plain_attention(recipe, block, shape)
        recipe.norm(f"blk.{block}.attn_q_norm.weight", shape.head_size)
        recipe.norm(f"blk.{block}.attn_k_norm.weight", shape.head_size)
        blocks.experts(recipe, block, shape)
    return write_with_demo_tokenizer(recipe, path)


def small_gpt_oss(path: Path, seed: int = 0, expert_type: str = "MXFP4") -> Path:
    """A random gpt-oss of 2 layers x 8 experts, top 4: expert biases, SWIGLU_OAI, attention sinks, sliding window."""
    shape = replace(_typed(SMALL, expert_type), layers=2, experts=8)
    recipe = attention_only("gpt-oss", shape, seed)
    recipe.number("attention.sliding_window", 128)
    recipe.matrix("output.weight", (shape.vocabulary, shape.n_embd), Q4_K)
    for block in range(shape.layers):
        blocks.block_norms(recipe, block, shape.n_embd, "post_attention_norm")
        blocks.plain_attention(recipe, block, shape)
        blocks.experts(recipe, block, shape)
        blocks.gpt_oss_biases(recipe, block, shape)
    return write_with_demo_tokenizer(recipe, path)


def sparse122b(path: Path, filled: Iterable[tuple[int, int, int]] = ((0, 0, 1), (47, 200, 208))) -> Path:
    """The whole 122B as a header and a hole: 49 x 256 experts (48 trunk layers and one nextn block), 70 GB apparent.

    `filled`: (layer, first, last) whose experts get random bytes; the rest reads as zeros. Vocabulary and merges have
    their real number, so that the header costs what a real one costs. Of no use to llama.cpp.
    """
    shape = replace(SHAPE_122B, nextn=1)
    recipe = _with_full_tokenizer(hybrid(shape, seed=0), shape.vocabulary)
    sizes = {tensor.name: tensor.size // shape.experts for tensor in recipe.tensors if "_exps." in tensor.name}
    spans = [
        (name, first * sizes[name], (last - first) * sizes[name])
        for layer, first, last in filled
        for name in (f"blk.{layer}.ffn_{role}_exps.weight" for role in ROLES)
    ]
    return write_sparse(recipe, path, spans)


def full122b(
    path: Path,
    layers: int = SHAPE_122B.layers,
    seed: int = 0,
    *,
    sparse: bool = False,
    processes: int = 1,
    progress: Callable[[float], None] = lambda share: None,
    shape: Shape = SHAPE_122B,
) -> Path:
    """The 122B as people download it: Q4_K_M's mix of types, MTP block, vocabulary of 248,320; 76 GB with 48 layers.

    llama.cpp loads and runs it. With fewer layers the last eighth of them still gets more bits, and every 2nd (4th) is
    attention. sparse: header and a hole, which reads as zeros. progress: the share of the bytes that are written.
    """
    interval = min(shape.attention_interval, layers)
    full = replace(shape, layers=layers, attention_interval=interval, nextn=1, mixed=True)
    recipe = _with_full_tokenizer(hybrid(full, seed), full.vocabulary)
    return write_sparse(recipe, path, ()) if sparse else write(recipe, path, processes=processes, progress=progress)


def demo_variant(
    path: Path,
    gate: str = "Q4_K",
    up: str = "Q4_K",
    down: str = "Q4_K",
    down_in_layers: Mapping[int, str] | None = None,
    merged: bool = False,
) -> Path:
    """The demo model with its routed experts in other types, or with gate and up merged into one tensor.

    `gate`, `up`, `down`: ggml type names (a merged tensor has gate's); `down_in_layers` overrides `down` by layer.
    Experts whose type stays keep their bytes, so the plain merged variant computes what the demo computes.
    """
    overrides = dict(down_in_layers or {})
    reader = gguf.GGUFReader(DEMO_MODEL)
    title = f"demo gate {gate} up {up} down {down} {sorted(overrides.items())} merged {merged}"
    recipe = Recipe(title, "qwen35moe", metadata=copied_metadata(reader, ""))
    source = {tensor.name: tensor for tensor in reader.tensors}
    for name, tensor in source.items():
        match = EXPERT_TENSOR.fullmatch(name)
        if match is None:
            recipe.tensors.append(retyped(tensor, int(tensor.tensor_type)))
        elif merged and match[2] == "gate":
            recipe.tensors.append(_merged(tensor, source[name.replace("gate", "up")], type_number(gate)))
        elif not merged or match[2] == "down":
            kind = {"gate": gate, "up": up, "down": overrides.get(int(match[1]), down)}[match[2]]
            recipe.tensors.append(retyped(tensor, type_number(kind)))
    return write(recipe, path)


def retyped(tensor: gguf.ReaderTensor, ggml_type: int) -> Tensor:
    shape = tuple(int(length) for length in reversed(tensor.shape))
    return Tensor(tensor.name, shape, ggml_type, lambda: _converted(tensor, ggml_type))


def _merged(gate: gguf.ReaderTensor, up: gguf.ReaderTensor, ggml_type: int) -> Tensor:
    """Per expert the rows of gate, then those of up: the order in which llama.cpp takes its two views."""
    n_in, n_out, experts = (int(length) for length in gate.shape)
    return Tensor(
        gate.name.replace("gate", "gate_up"),
        (experts, 2 * n_out, n_in),
        ggml_type,
        lambda: np.concatenate([_converted(gate, ggml_type), _converted(up, ggml_type)], axis=1),
    )


def _converted(tensor: gguf.ReaderTensor, ggml_type: int) -> Any:
    if int(tensor.tensor_type) == ggml_type:
        return np.asarray(tensor.data)
    return quantize(gguf.quants.dequantize(tensor.data, tensor.tensor_type), ggml_type)


def _typed(shape: Shape, expert_type: str) -> Shape:
    return replace(shape, expert_type=type_number(expert_type), down_type=type_number(expert_type))


def hybrid(shape: Shape, seed: int) -> Recipe:
    recipe = Recipe(f"qwen35moe {shape} seed {seed}", "qwen35moe", seed)
    recipe.metadata["general.name"] = (f"random-qwen35moe-{shape.layers}x{shape.experts}", Kind.STRING, None)
    blocks.hybrid_metadata(recipe, shape)
    recipe.norm("output_norm.weight", shape.n_embd)
    recipe.matrix("token_embd.weight", (shape.vocabulary, shape.n_embd), Q4_K)
    if shape.mixed:
        recipe.matrix("output.weight", (shape.vocabulary, shape.n_embd), Q6_K)
    for block in range(shape.layers + shape.nextn):
        blocks.block_norms(recipe, block, shape.n_embd, "post_attention_norm")
        if block >= shape.layers or (block + 1) % shape.attention_interval == 0:
            blocks.attention(recipe, block, shape)
        else:
            blocks.delta_net(recipe, block, shape)
        blocks.experts(recipe, block, shape)
        blocks.shared_expert(recipe, block, shape)
        if block >= shape.layers:
            blocks.nextn(recipe, block, shape)
    return recipe


def attention_only(architecture: str, shape: Shape, seed: int) -> Recipe:
    recipe = Recipe(f"{architecture} {shape} seed {seed}", architecture, seed)
    recipe.metadata["general.name"] = (f"random-{architecture}-{shape.layers}x{shape.experts}", Kind.STRING, None)
    blocks.attention_metadata(recipe, shape)
    recipe.norm("output_norm.weight", shape.n_embd)
    recipe.matrix("token_embd.weight", (shape.vocabulary, shape.n_embd), Q4_K)
    return recipe


def _with_full_tokenizer(recipe: Recipe, vocabulary: int) -> Recipe:
    """The demo's tokenizer, padded with tokens and merges that no text reaches to the number that the real one has."""
    copied = copied_metadata(gguf.GGUFReader(DEMO_MODEL), "tokenizer.")
    tokens, merges = (list(copied[f"tokenizer.ggml.{name}"][0]) for name in ("tokens", "merges"))
    kinds = list(copied["tokenizer.ggml.token_type"][0])
    tokens += [f"[unused{number}]" for number in range(len(tokens), vocabulary)]
    merges += [
        f"[unused{number}] [unused]"
        for number in range(len(merges), vocabulary - (SHAPE_122B.vocabulary - MERGES_122B))
    ]
    kinds += [int(gguf.TokenType.UNUSED)] * (len(tokens) - len(kinds))
    recipe.metadata |= copied
    recipe.metadata["tokenizer.ggml.tokens"] = (tokens, Kind.ARRAY, Kind.STRING)
    recipe.metadata["tokenizer.ggml.merges"] = (merges, Kind.ARRAY, Kind.STRING)
    recipe.metadata["tokenizer.ggml.token_type"] = (kinds, Kind.ARRAY, Kind.INT32)
    return recipe


def write_with_demo_tokenizer(recipe: Recipe, path: Path) -> Path:
    recipe.metadata |= copied_metadata(gguf.GGUFReader(DEMO_MODEL), "tokenizer.")
    return write(recipe, path)
