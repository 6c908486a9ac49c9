"""Plain builders of market objects for tests: a build of the demo model's shape, nodes and claims that exist."""

from datetime import UTC, datetime

from market.builds import BuildDescription

# A full hour, so that tests see where hours begin.
MORNING = datetime(2026, 3, 1, 9, tzinfo=UTC)
FINGERPRINT = "0123456789abcdef0123456789abcdef"
DEMO_EXPERT_BYTES = 110_592


def demo_build(
    fingerprint: str = FINGERPRINT, *, layers: int = 8, experts: int = 32, expert_bytes: int = DEMO_EXPERT_BYTES
) -> BuildDescription:
    """8 layers x 32 experts of equal size, top 4, 256 wide: the shape of the demo model."""
    return BuildDescription(
        fingerprint=fingerprint,
        name="demo",
        architecture="qwen35moe",
        n_embd=256,
        n_ff=256,
        experts_per_layer=experts,
        experts_used=4,
        layers=tuple(range(layers)),
        expert_bytes=(expert_bytes,) * layers,
        expert_types=(("Q4_K",),) * layers,
    )
