"""The rows of every read model, as plain mutable objects with the very fields of the tables in market.models. Pure.

The fold writes these; the projections write the tables; a test holds the field names of both together.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from market.kinds import BuildKind, NodeRole

PENDING = "pending"
LIVE = "live"
RELEASED = "released"
EXPIRED = "expired"
ClaimState = Literal["pending", "live", "released", "expired"]
OPEN_STATES = (PENDING, LIVE)

# A payout batch: drafted -> approved -> sending -> sent -> closed, or cancelled from one of the first two.
DRAFTED = "drafted"
APPROVED = "approved"
SENDING = "sending"
SENT = "sent"
CLOSED = "closed"
CANCELLED = "cancelled"
CANCELLABLE_STATES = (DRAFTED, APPROVED)
# A payout item: reserved -> settled or failed, settled -> returned; cancelled with its batch.
RESERVED = "reserved"
SETTLED = "settled"
FAILED = "failed"
RETURNED = "returned"


@dataclass(slots=True)
class BuildRow:
    fingerprint: str
    name: str
    architecture: str
    n_embd: int
    n_ff: int
    experts_per_layer: int
    experts_used: int
    kind: BuildKind
    published_at: datetime
    retired_at: datetime | None


@dataclass(slots=True)
class LayerRow:
    """One offered layer; `ordinal` is its row in arrays (layers, experts).

    replicas: (experts,) uint16, claims that are pending or live. reserved: the sum of those claims' caps.
    """

    build: str
    layer: int
    ordinal: int
    expert_bytes: int
    expert_types: str
    replicas: NDArray[np.uint16]
    reserved_microcredits_per_hour: int


@dataclass(slots=True)
class NodeRow:
    node_id: str
    role: NodeRole
    kernel_class: str
    budget_bytes: int | None
    token_sha256: str
    suspended_reason: str
    quarantined: bool
    trust: int
    trusted_class: str
    owner_id: str
    leaves_at: datetime | None
    erased_at: datetime | None
    registered_at: datetime


def no_token(node_id: str) -> str:
    """What stands where the digest of a revoked token stood: unique, as the column demands, and no digest."""
    return f"none:{node_id}"


@dataclass(slots=True)
class ClaimRow:
    claim_id: int
    node_id: str
    build: str
    layer: int
    first: int
    last: int
    fence: int
    state: str
    size_bytes: int
    rate_microcredits_per_teraflop: int
    cap_microcredits_per_hour: int
    first_hour_microcredits: int
    sha256: str
    granted_at: datetime
    verified_at: datetime | None
    ended_at: datetime | None
    end_reason: str
    earned_microcredits: int
    hour: datetime | None
    hour_microcredits: int


@dataclass(slots=True)
class DemandRow:
    """rows_per_hour: (layers, experts) float64, an exponential mean."""

    build: str
    rows_per_hour: NDArray[np.float64]
    observed_until: datetime


@dataclass(slots=True)
class CreditedRowsRow:
    """Sums over all WorkCredited events: what the check 'credited rows equal used rows' reads."""

    build: str
    node_id: str
    layer: int
    rows: int
    amount_microcredits: int


@dataclass(slots=True)
class PostingRow:
    event_position: int
    line: int
    account: str
    amount_microcredits: int


@dataclass(slots=True)
class BalanceRow:
    """One account of one node. The treasury has no row: every credit would queue for it; it is the sum of postings."""

    account: str
    balance_microcredits: int


@dataclass(slots=True)
class HoldRow:
    """Rewards of one node that were credited in the ten minutes before earned_until: where they are now."""

    node_id: str
    earned_until: datetime
    held_microcredits: int
    released_microcredits: int
    forfeited_microcredits: int


@dataclass(slots=True)
class ForfeitRow:
    """One earnings-forfeited, by its position; it can be taken back once."""

    position: int
    node_id: str
    amount_microcredits: int
    by: str
    reason: str
    at: datetime
    restored_at: datetime | None


@dataclass(slots=True)
class PayoutBatchRow:
    """open_items: how many items are neither settled nor failed."""

    batch_id: int
    state: str
    items: int
    open_items: int
    total_microcredits: int
    minimum_microcredits: int
    cutoff: datetime
    reserve_percent: int
    drafted_by: str
    reason: str
    drafted_at: datetime
    approved_by: str
    approved_at: datetime | None
    provider: str
    reference: str
    sent_at: datetime | None
    ended_at: datetime | None


@dataclass(slots=True)
class PayoutItemRow:
    item_id: str
    batch_id: int
    node_id: str
    amount_microcredits: int
    state: str
    reference: str
    reason: str
    changed_at: datetime


@dataclass(slots=True)
class IncidentRow:
    incident_id: int
    starts_at: datetime
    ends_at: datetime
    by: str
    reason: str
    declared_at: datetime


@dataclass(slots=True)
class PolicyRow:
    """The policy in force; absent until the first PolicyChanged event."""

    number: int
    budget_microcredits_per_hour: int
    price_ceiling_microcredits_per_teraflop: int
    target_replicas: int
    maximum_replicas: int
    target_bytes_percent: int
    standby_percent: int
    changed_at: datetime
