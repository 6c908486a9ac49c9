"""The tensors and metadata of one synthetic model, block by block, for a recipe.

Names and shapes follow the loaders in llama.cpp's src/models (qwen35moe, qwen3moe, openai-moe) as of
llama-cpp-python 0.3.36.
"""

from dataclasses import dataclass

from inference.synthetic_file import Recipe
from inference.synthetic_weights import F32, Q4_K, Q5_K, Q6_K


@dataclass(frozen=True)
class Shape:
    """Sizes of a hybrid (Gated DeltaNet and attention) MoE model; the defaults are Qwen3.5-122B-A10B's.

    `nextn` blocks come after `layers` trunk blocks and hold experts that plain decoding never calls. `mixed`: the types
    of llama.cpp's Q4_K_M, which gives some tensors more bits (llama-quant.cpp as of llama-cpp-python 0.3.36).
    """

    layers: int = 48
    nextn: int = 0
    n_embd: int = 3072
    n_ff: int = 1024
    experts: int = 256
    experts_used: int = 8
    heads: int = 32
    kv_heads: int = 2
    head_size: int = 256
    key_groups: int = 16
    value_heads: int = 64
    state_size: int = 128
    convolution: int = 4
    attention_interval: int = 4
    vocabulary: int = 248_320
    expert_type: int = Q4_K
    down_type: int = Q4_K
    mixed: bool = False

    def more_bits(self, block: int, plain: int = Q4_K) -> int:
        """Q6_K in the blocks that Q4_K_M favours: the first and last eighth, and every third between; else `plain`."""
        eighth = self.layers // 8
        favoured = block < eighth or block >= 7 * self.layers // 8 or (block - eighth) % 3 == 2
        return Q6_K if self.mixed and favoured else plain


def hybrid_metadata(recipe: Recipe, shape: Shape) -> None:
    numbers: dict[str, int | float] = {
        "context_length": 4096,
        "embedding_length": shape.n_embd,
        "block_count": shape.layers + shape.nextn,
        "expert_feed_forward_length": shape.n_ff,
        "expert_shared_feed_forward_length": shape.n_ff,
        "expert_count": shape.experts,
        "expert_used_count": shape.experts_used,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads,
        "attention.key_length": shape.head_size,
        "attention.value_length": shape.head_size,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.dimension_count": shape.head_size // 4,
        "rope.freq_base": 1e7,
        "ssm.conv_kernel": shape.convolution,
        "ssm.state_size": shape.state_size,
        "ssm.group_count": shape.key_groups,
        "ssm.time_step_rank": shape.value_heads,
        "ssm.inner_size": shape.value_heads * shape.state_size,
        "full_attention_interval": shape.attention_interval,
    }
    if shape.nextn:
        numbers["nextn_predict_layers"] = shape.nextn
    for key, value in numbers.items():
        recipe.number(key, value)
    pairs = shape.head_size // 8
    third = -(-pairs // 3)
    recipe.numbers("rope.dimension_sections", (third, third, pairs - 2 * third, 0))


def block_norms(recipe: Recipe, block: int, n_embd: int, second: str) -> None:
    recipe.norm(f"blk.{block}.attn_norm.weight", n_embd)
    recipe.norm(f"blk.{block}.{second}.weight", n_embd)


def attention(recipe: Recipe, block: int, shape: Shape) -> None:
    """Gated full attention: the query projection carries the output gate, hence twice the width."""
    query, cache = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    recipe.matrix(f"blk.{block}.attn_q.weight", (2 * query, shape.n_embd), Q4_K)
    recipe.matrix(f"blk.{block}.attn_k.weight", (cache, shape.n_embd), Q4_K)
    recipe.matrix(f"blk.{block}.attn_v.weight", (cache, shape.n_embd), shape.more_bits(block))
    recipe.matrix(f"blk.{block}.attn_output.weight", (shape.n_embd, query), Q4_K)
    recipe.norm(f"blk.{block}.attn_q_norm.weight", shape.head_size)
    recipe.norm(f"blk.{block}.attn_k_norm.weight", shape.head_size)


def delta_net(recipe: Recipe, block: int, shape: Shape) -> None:
    value = shape.value_heads * shape.state_size
    mixed = 2 * shape.key_groups * shape.state_size + value
    recipe.matrix(f"blk.{block}.attn_qkv.weight", (mixed, shape.n_embd), Q5_K if shape.mixed else Q4_K)
    recipe.matrix(f"blk.{block}.attn_gate.weight", (value, shape.n_embd), Q4_K)
    recipe.matrix(f"blk.{block}.ssm_conv1d.weight", (mixed, shape.convolution), F32)
    recipe.vector(f"blk.{block}.ssm_dt.bias", shape.value_heads, -4.0, 0.0)
    recipe.vector(f"blk.{block}.ssm_a", shape.value_heads, -4.0, -0.5)  # negative: the state must decay
    recipe.matrix(f"blk.{block}.ssm_beta.weight", (shape.value_heads, shape.n_embd), Q4_K)
    recipe.matrix(f"blk.{block}.ssm_alpha.weight", (shape.value_heads, shape.n_embd), Q4_K)
    recipe.norm(f"blk.{block}.ssm_norm.weight", shape.state_size)
    recipe.matrix(f"blk.{block}.ssm_out.weight", (shape.n_embd, value), Q4_K)


def experts(recipe: Recipe, block: int, shape: Shape) -> None:
    recipe.matrix(f"blk.{block}.ffn_gate_inp.weight", (shape.experts, shape.n_embd), F32)
    for role in ("gate", "up"):
        name = f"blk.{block}.ffn_{role}_exps.weight"
        recipe.matrix(name, (shape.experts, shape.n_ff, shape.n_embd), shape.expert_type)
    down_type = shape.more_bits(block, shape.down_type)
    recipe.matrix(f"blk.{block}.ffn_down_exps.weight", (shape.experts, shape.n_embd, shape.n_ff), down_type)


def shared_expert(recipe: Recipe, block: int, shape: Shape) -> None:
    recipe.vector(f"blk.{block}.ffn_gate_inp_shexp.weight", shape.n_embd, -0.03, 0.03)
    recipe.matrix(f"blk.{block}.ffn_gate_shexp.weight", (shape.n_ff, shape.n_embd), Q4_K)
    recipe.matrix(f"blk.{block}.ffn_up_shexp.weight", (shape.n_ff, shape.n_embd), Q4_K)
    recipe.matrix(f"blk.{block}.ffn_down_shexp.weight", (shape.n_embd, shape.n_ff), shape.more_bits(block))


def nextn(recipe: Recipe, block: int, shape: Shape) -> None:
    recipe.matrix(f"blk.{block}.nextn.eh_proj.weight", (shape.n_embd, 2 * shape.n_embd), Q4_K)
    for name in ("enorm", "hnorm", "shared_head_norm"):
        recipe.norm(f"blk.{block}.nextn.{name}.weight", shape.n_embd)


def attention_metadata(recipe: Recipe, shape: Shape) -> None:
    """Metadata of an attention-only MoE model (qwen3moe, gpt-oss)."""
    numbers: dict[str, int | float] = {
        "context_length": 4096,
        "embedding_length": shape.n_embd,
        "block_count": shape.layers,
        "feed_forward_length": shape.n_ff,
        "expert_feed_forward_length": shape.n_ff,
        "expert_count": shape.experts,
        "expert_used_count": shape.experts_used,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads,
        "attention.key_length": shape.head_size,
        "attention.value_length": shape.head_size,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 1e6,
    }
    for key, value in numbers.items():
        recipe.number(key, value)


def plain_attention(recipe: Recipe, block: int, shape: Shape) -> None:
    query, cache = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    recipe.matrix(f"blk.{block}.attn_q.weight", (query, shape.n_embd), Q4_K)
    recipe.matrix(f"blk.{block}.attn_k.weight", (cache, shape.n_embd), Q4_K)
    recipe.matrix(f"blk.{block}.attn_v.weight", (cache, shape.n_embd), Q4_K)
    recipe.matrix(f"blk.{block}.attn_output.weight", (shape.n_embd, query), Q4_K)


def gpt_oss_biases(recipe: Recipe, block: int, shape: Shape) -> None:
    recipe.vector(f"blk.{block}.attn_sinks.weight", shape.heads, -1.0, 1.0)
    recipe.vector(f"blk.{block}.attn_output.bias", shape.n_embd, -0.1, 0.1)
    recipe.vector(f"blk.{block}.ffn_gate_inp.bias", shape.experts, -0.1, 0.1)
    for role, width in (("gate", shape.n_ff), ("up", shape.n_ff), ("down", shape.n_embd)):
        recipe.matrix(f"blk.{block}.ffn_{role}_exps.bias", (shape.experts, width), F32)
