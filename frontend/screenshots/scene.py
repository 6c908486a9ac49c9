"""What the demo server shows, in names and sizes. Needs no Django."""

from market.builds import BuildDescription

READY = "READY"
OPERATOR, OWNER, PASSWORD = "olga", "bob", "a demonstration"
BOOKKEEPER = "berta"
DEVICES, CLAIMS = 240, 1_800
HOLD_SECONDS = 1
# The shape of Qwen3.5-122B-A10B in Q4_K_M, with one layer more: 12,544 experts.
BUILD = BuildDescription(
    fingerprint="5eed0000000000000000000000000122",
    name="Qwen3.5-122B-A10B Q4_K_M",
    architecture="qwen35moe",
    n_embd=3072,
    n_ff=1024,
    experts_per_layer=256,
    experts_used=8,
    layers=tuple(range(49)),
    expert_bytes=tuple(6_119_424 if layer % 8 == 7 else 5_308_416 for layer in range(49)),
    expert_types=tuple(("Q4_K", "Q6_K") if layer % 8 == 7 else ("Q4_K",) for layer in range(49)),
)
