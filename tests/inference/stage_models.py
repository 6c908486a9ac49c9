"""Random models of architectures that are cut into stages and that nothing else here needs a model of."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from inference import synthetic, synthetic_blocks
from inference.synthetic_file import Recipe
from inference.synthetic_weights import Q4_K

SHAPE = replace(synthetic.SMALL, layers=4, experts=8)


def qwen2moe(path: Path) -> Path:
    """Attention with biases, a shared expert, a head of its own that the loader demands."""
    recipe = _plain("qwen2moe")
    recipe.number("expert_shared_feed_forward_length", SHAPE.n_ff)
    for block in range(SHAPE.layers):
        synthetic_blocks.block_norms(recipe, block, SHAPE.n_embd, "ffn_norm")
        synthetic_blocks.plain_attention(recipe, block, SHAPE)
        for name, width in (("q", SHAPE.n_embd), ("k", SHAPE.kv_heads * 64), ("v", SHAPE.kv_heads * 64)):
            recipe.vector(f"blk.{block}.attn_{name}.bias", width, -0.1, 0.1)
        synthetic_blocks.experts(recipe, block, SHAPE)
        synthetic_blocks.shared_expert(recipe, block, SHAPE)
    return synthetic.write_with_demo_tokenizer(recipe, path)


def olmoe(path: Path) -> Path:
    """Norms over all heads at once, a head of its own that the loader demands."""
    shape = replace(SHAPE, kv_heads=SHAPE.heads)
    recipe = _plain("olmoe")
    recipe.number("attention.head_count_kv", shape.kv_heads)
    for block in range(shape.layers):
        synthetic_blocks.block_norms(recipe, block, shape.n_embd, "ffn_norm")
        synthetic_blocks.plain_attention(recipe, block, shape)
        recipe.norm(f"blk.{block}.attn_q_norm.weight", shape.n_embd)
        recipe.norm(f"blk.{block}.attn_k_norm.weight", shape.n_embd)
        synthetic_blocks.experts(recipe, block, shape)
    return synthetic.write_with_demo_tokenizer(recipe, path)


def qwen3next(path: Path) -> Path:
    """Hybrid as qwen35moe, but with plain rotary positions and one matrix for beta and alpha."""
    shape = replace(SHAPE, layers=8)
    recipe = synthetic.hybrid(shape, seed=0)
    renamed = Recipe("qwen3next for stages", "qwen3next")
    renamed.metadata["general.name"] = recipe.metadata["general.name"]
    synthetic_blocks.hybrid_metadata(renamed, shape)
    renamed.tensors = [tensor for tensor in recipe.tensors if not tensor.name.endswith(("beta.weight", "alpha.weight"))]
    for block in range(shape.layers):
        if (block + 1) % shape.attention_interval:
            renamed.matrix(f"blk.{block}.ssm_ba.weight", (2 * shape.value_heads, shape.n_embd), Q4_K)
    return synthetic.write_with_demo_tokenizer(renamed, path)


def _plain(architecture: str) -> Recipe:
    recipe = synthetic.attention_only(architecture, SHAPE, seed=0)
    recipe.matrix("output.weight", (SHAPE.vocabulary, SHAPE.n_embd), Q4_K)
    return recipe


MAKERS: dict[str, Callable[[Path], Path]] = {"qwen2moe": qwen2moe, "olmoe": olmoe, "qwen3next": qwen3next}
