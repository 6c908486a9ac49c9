"""The JSON shapes of the node API. Amounts are integer microcredits (10^-6 credit); times are ISO 8601 in UTC."""

from datetime import datetime
from typing import Annotated, Literal

from ninja import Schema
from pydantic import Field, model_validator

from market.commands.claims import RANGES_LIMIT
from market.commands.nodes import BUDGET_LIMIT_BYTES
from market.kinds import BuildKind, NodeRole

Bytes = Annotated[int, Field(ge=1, le=BUDGET_LIMIT_BYTES)]
LayerNumber = Annotated[int, Field(ge=0, le=0xFFFF)]
ExpertNumber = Annotated[int, Field(ge=0, le=0xFFFF)]
Fingerprint = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class ErrorBody(Schema):
    code: str
    message: str


class ErrorOut(Schema):
    """Every answer that is not 2xx."""

    error: ErrorBody


class NodeIn(Schema):
    name: str = Field("", max_length=200, description="Shown to people; one line, at most 60 characters.")
    kernel_class: str = Field(max_length=120, description="What computes, for example ggml-0.25.3+avx2 or numpy.")
    budget_bytes: Bytes | None = None
    invite: str = Field("", max_length=100, description="Where registration is by invite: the code.")
    role: NodeRole = Field(
        "worker", description="What it holds, for good: experts (worker), or a stage of the dense path."
    )


class NodeOut(Schema):
    node_id: str
    token: str = Field(description="Shown once. Send it as `Authorization: Bearer ...` and in the relay's HELLO.")


class PresetOut(Schema):
    """A memory budget that holds a whole number of experts."""

    experts: int
    size_bytes: int


class BuildOut(Schema):
    """Of kind "stages": its one layer is number 0, and its experts are the units of the dense path."""

    fingerprint: str
    kind: BuildKind
    name: str
    architecture: str
    n_embd: int
    n_ff: int
    experts_per_layer: int
    experts_used: int
    layers: list[int]
    types: list[str]
    experts: int
    experts_covered: int
    presets: list[PresetOut]


class RangeOut(Schema):
    """Experts [first, last) of one layer, `last` left out."""

    build: str
    layer: int
    first: int
    last: int
    size_bytes: int
    replicas: int
    rate_microcredits_per_hour: int = Field(description="What the range may earn per hour, at full use.")
    rate_microcredits_per_teraflop: int
    microcredits_per_hour_per_megabyte: float


class DemandOut(Schema):
    builds: list[BuildOut]
    ranges: list[RangeOut]
    poll_seconds: float = Field(description="Ask again after this time; random, so that devices do not ask together.")
    reason: str | None = Field(None, description="Why `ranges` is empty.")
    message: str | None = None


class RangeIn(Schema):
    layer: LayerNumber
    first: ExpertNumber
    last: ExpertNumber


class ClaimIn(Schema):
    """Either `ranges` or `best_for_budget_bytes`."""

    build: Fingerprint | None = None
    ranges: Annotated[list[RangeIn], Field(min_length=1, max_length=RANGES_LIMIT)] | None = None
    best_for_budget_bytes: Bytes | None = None
    types: Annotated[list[str], Field(max_length=64)] | None = Field(
        None, description="The ggml types that the device computes; left out: all."
    )

    @model_validator(mode="after")
    def one_kind(self) -> "ClaimIn":
        if (self.ranges is None) == (self.best_for_budget_bytes is None):
            raise ValueError("give either ranges or best_for_budget_bytes")
        return self


class ClaimOut(Schema):
    claim_id: int
    build: str
    layer: int
    first: int
    last: int
    fence: int
    state: Literal["pending", "live"]
    sha256: str | None
    expires_at: datetime = Field(description="Unless the device is seen again: by the relay, or POST /api/heartbeat.")
    size_bytes: int
    rate_microcredits_per_hour: int
    rate_microcredits_per_teraflop: int
    earned_microcredits: int
    cap_reached: bool
    slice_url: str
    manifest_url: str
    replicas: int | None = Field(
        None,
        description="Told to stages by the heartbeat: present replicas of its least held unit, its own too.",
    )


class ClaimsOut(Schema):
    claims: list[ClaimOut]


class ReleasedOut(Schema):
    released: int


class DeliveredIn(Schema):
    fence: Annotated[int, Field(ge=0, le=0xFFFFFFFF)]
    sha256: Digest


class HeartbeatOut(Schema):
    claims: list[ClaimOut]
    lease_seconds: float


class MessageOut(Schema):
    at: datetime
    text: str


class MeOut(Schema):
    node_id: str
    name: str
    role: NodeRole
    kernel_class: str
    suspended: bool
    claims: list[ClaimOut]
    trust: int = Field(description="Audited answers in a row that were right; more trust, fewer audits.")
    leaves_at: datetime | None = Field(description="When the device has announced to leave.")
    has_payee: bool = Field(description="Whether a payout knows where to send the earnings: PUT /api/me/payee.")
    balance_microcredits: dict[str, int] = Field(
        description="By account: pending (may still be voided), available, in_transit (on a payout), paid."
    )
    reason: str | None = Field(description="Why the device earns nothing at the moment.")
    message: str | None
    messages: list[MessageOut] = Field(description="What operators wrote to the owner, newest first.")
    lease_seconds: float


class PayeeIn(Schema):
    payee: str = Field(
        max_length=400, description="What the payment provider needs, for example an IBAN; empty: forget."
    )


class PayeeOut(Schema):
    has_payee: bool


class LeaveIn(Schema):
    leaves_at: datetime | None = Field(description="With a time zone; null: the device stays.")
    reason: str = Field("", max_length=200)


class LeaveOut(Schema):
    leaves_at: datetime | None
