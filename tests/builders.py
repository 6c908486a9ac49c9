"""Plain builders of market objects for tests: a build of the demo model's shape, nodes and claims that exist.

Alice asks, Bob hosts experts, Mallory cheats.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypedDict

from market import commands, queries
from market.builds import BuildDescription

# A full hour, so that tests see where hours begin.
MORNING = datetime(2026, 3, 1, 9, tzinfo=UTC)
FINGERPRINT = "0123456789abcdef0123456789abcdef"
DEMO_EXPERT_BYTES = 110_592
# The dense path of the same model, in units of one layer.
STAGES = "5" * 32
UNIT_BYTES = 2_000_000
DIGEST = "ab" * 32
OTHER_DIGEST = "cd" * 32


class Why(TypedDict):
    """Who does something, and why: named arguments of many commands."""

    by: str
    reason: str


def later(seconds: float) -> datetime:
    return MORNING + timedelta(seconds=seconds)


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


def stage_build(fingerprint: str = STAGES, *, units: int = 12, unit_bytes: int = UNIT_BYTES) -> BuildDescription:
    """The stages of a model of so many units."""
    return BuildDescription(
        fingerprint=fingerprint,
        name="demo, stages",
        architecture="qwen35moe",
        n_embd=256,
        n_ff=2048,
        experts_per_layer=units,
        experts_used=units,
        layers=(0,),
        expert_bytes=(unit_bytes,),
        expert_types=(("Q4_K",),),
        kind="stages",
    )


@dataclass(frozen=True)
class Device:
    node_id: str
    token: str


def registered(name: str = "Bob's phone", *, now: datetime = MORNING) -> Device:
    return Device(*commands.register_node(name, "numpy", now=now))


def stage_device(name: str = "Alice's server", *, now: datetime = MORNING) -> Device:
    return Device(*commands.register_node(name, "ggml", role="stage", now=now))


def claimed(
    device: Device, layer: int = 0, first: int = 0, last: int = 8, *, now: datetime = MORNING
) -> queries.ClaimView:
    """An open claim; its build must be the only one of the kind that the device holds."""
    return commands.claim_ranges(device.node_id, [commands.RangeWish(layer, first, last)], now=now)[0]


def verified(claim: queries.ClaimView, *, now: datetime = MORNING) -> queries.ClaimView:
    """The same claim after a backbone found its slice right."""
    commands.verify_replica(claim.claim_id, claim.fence, DIGEST, "backbone", now=now)
    live = queries.claim(claim.claim_id)
    assert live is not None
    return live


def payable_device(name: str = "Bob's phone", *, layer: int = 0, rows: int = 1000, payee: str = "IBAN 1") -> Device:
    """A device in an account with a payee that has earned for `rows` rows, on hold. The build must be there."""
    device = registered(name)
    owner_id = commands.create_owner(name, payee)
    commands.link_node(device.node_id, owner_id, by="owner", reason="tested", now=MORNING)
    worked(device, claimed(device, layer), rows)
    return device


def worked(device: Device, claim: queries.ClaimView, rows: int = 1000, *, key: str = "", end: float = 60) -> int:
    """Credits one window that ends `end` seconds after MORNING; the amount."""
    name = key or f"{device.node_id} {claim.claim_id} {end}"
    window = (later(end - 60), later(end))
    work = [(claim.claim_id, claim.layer, rows)]
    return commands.credit_work(name, FINGERPRINT, device.node_id, *window, work, now=later(end)).amount_microcredits
