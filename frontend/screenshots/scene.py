"""What the demo server shows, in names and sizes. Needs no Django."""

from inference.stages import stage_fingerprint
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
# Its dense path: twelve units of four layers.
STAGES = BuildDescription(
    fingerprint=stage_fingerprint(BUILD.fingerprint),
    name=f"{BUILD.name}, stages",
    architecture=BUILD.architecture,
    n_embd=BUILD.n_embd,
    n_ff=26_000,
    experts_per_layer=12,
    experts_used=12,
    layers=(0,),
    expert_bytes=(640_000_000,),
    expert_types=(("Q4_K", "Q6_K"),),
    kind="stages",
)
# Hosts and the units that each holds; nobody holds the last one.
STAGE_HOSTS = (("rack 1", 0, 4), ("rack 2", 4, 8), ("Grete's workstation", 0, 4), ("Jun's workstation", 8, 11))
