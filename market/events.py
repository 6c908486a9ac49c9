"""Everything that has ever happened in the market: a closed union of frozen facts. Pure.

Each class has a stored NAME and VERSION that never change meaning; the name is not an import path, so classes may move.
`market.codec` turns events into JSON and back, `market.fold` says what each one does, `docs/events.md` lists them.
Times are aware datetimes in UTC; amounts are integer microcredits; a range [first, last) leaves `last` out.
No event holds personal data: a device's name lives in a table of its own, and can be erased while the books stay.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, get_args

from market.builds import BuildDescription
from market.ledger import HeldPart, Posting
from market.ledger_events import (
    BalanceAdjusted,
    EarningsFact,
    EarningsForfeited,
    EarningsReleased,
    EarningsRestored,
    PayoutApproved,
    PayoutCancelled,
    PayoutDrafted,
    PayoutFact,
    PayoutItem,
    PayoutItemFailed,
    PayoutItemReturned,
    PayoutItemSettled,
    PayoutSending,
    PayoutSent,
)
from market.node_events import (
    NodeAudited,
    NodeErased,
    NodeFact,
    NodeLeaving,
    NodeLinked,
    NodeMessaged,
    NodeQuarantined,
    NodeRegistered,
    NodeReinstated,
    NodeStayed,
    NodeSuspended,
    NodeTokenRevoked,
    NodeTokenRotated,
)

__all__ = [
    "EVENT_TYPES",
    "BalanceAdjusted",
    "BuildPublished",
    "BuildRestored",
    "BuildRetired",
    "ClaimExpired",
    "ClaimFact",
    "ClaimGranted",
    "ClaimReleased",
    "DemandObserved",
    "EarningsFact",
    "EarningsForfeited",
    "EarningsReleased",
    "EarningsRestored",
    "Event",
    "HeldPart",
    "IncidentDeclared",
    "NodeAudited",
    "NodeErased",
    "NodeFact",
    "NodeLeaving",
    "NodeLinked",
    "NodeMessaged",
    "NodeQuarantined",
    "NodeRegistered",
    "NodeReinstated",
    "NodeStayed",
    "NodeSuspended",
    "NodeTokenRevoked",
    "NodeTokenRotated",
    "PayoutApproved",
    "PayoutCancelled",
    "PayoutDrafted",
    "PayoutFact",
    "PayoutItem",
    "PayoutItemFailed",
    "PayoutItemReturned",
    "PayoutItemSettled",
    "PayoutSending",
    "PayoutSent",
    "PolicyChanged",
    "Posting",
    "Recorded",
    "ReplicaLost",
    "ReplicaVerified",
    "SliceDelivered",
    "WorkCredited",
    "WorkLine",
    "layer_stream",
    "stream_of",
]


@dataclass(frozen=True, slots=True)
class BuildPublished:
    """A backbone offers the experts of this build, or the stages of its dense path. Said by: the backbone, at start."""

    NAME: ClassVar = "build-published"
    VERSION: ClassVar = 2
    build: BuildDescription
    at: datetime


@dataclass(frozen=True, slots=True)
class BuildRetired:
    """The build is no longer on offer; its claims end within minutes. Said by: an operator."""

    NAME: ClassVar = "build-retired"
    VERSION: ClassVar = 1
    fingerprint: str
    by: str
    reason: str
    at: datetime


@dataclass(frozen=True, slots=True)
class BuildRestored:
    """A retired build is on offer again. Said by: an operator."""

    NAME: ClassVar = "build-restored"
    VERSION: ClassVar = 1
    fingerprint: str
    by: str
    reason: str
    at: datetime


@dataclass(frozen=True, slots=True)
class ClaimGranted:
    """A device may hold the experts [first, last) of one layer, at this rate, under this fence. Said by: the market.

    The cap is reserved from the operator's budget as long as the claim lives. The claim lives as long as the device is
    seen (presence is no event); `fence` is the version of this event in its stream, so it only grows within a layer.
    """

    NAME: ClassVar = "claim-granted"
    VERSION: ClassVar = 1
    claim_id: int
    fence: int
    node_id: str
    build: str
    layer: int
    first: int
    last: int
    size_bytes: int
    rate_microcredits_per_teraflop: int
    cap_microcredits_per_hour: int
    at: datetime


@dataclass(frozen=True, slots=True)
class ClaimReleased:
    """The claim ended before its time. Said by: the device, or the market when the node was suspended."""

    NAME: ClassVar = "claim-released"
    VERSION: ClassVar = 1
    claim_id: int
    build: str
    layer: int
    reason: str
    at: datetime


@dataclass(frozen=True, slots=True)
class ClaimExpired:
    """The claim ended because its device had not been seen for a whole lease. Said by: the market's timer."""

    NAME: ClassVar = "claim-expired"
    VERSION: ClassVar = 1
    claim_id: int
    build: str
    layer: int
    last_seen_at: datetime
    at: datetime


@dataclass(frozen=True, slots=True)
class SliceDelivered:
    """The device says it holds the whole slice, with this digest. Nothing is proved yet. Said by: the device."""

    NAME: ClassVar = "slice-delivered"
    VERSION: ClassVar = 1
    claim_id: int
    build: str
    layer: int
    sha256: str
    at: datetime


@dataclass(frozen=True, slots=True)
class ReplicaVerified:
    """The slice has the right digest and its device answered a challenge rightly. Said by: a backbone."""

    NAME: ClassVar = "replica-verified"
    VERSION: ClassVar = 1
    claim_id: int
    build: str
    layer: int
    sha256: str
    backbone: str
    at: datetime


@dataclass(frozen=True, slots=True)
class ReplicaLost:
    """A verified replica is no longer served; its claim may live on and be verified again.

    Said by: a backbone or the market.
    """

    NAME: ClassVar = "replica-lost"
    VERSION: ClassVar = 1
    claim_id: int
    build: str
    layer: int
    reason: str
    at: datetime


@dataclass(frozen=True, slots=True)
class DemandObserved:
    """How often the router chose each expert during a window. Said by: a backbone, every five minutes per build.

    counts: base64 of little-endian uint16, shape (layers, experts) in the build's order of layers; the true number is
    counts x scale, rounded down to a multiple of scale.
    """

    NAME: ClassVar = "demand-observed"
    VERSION: ClassVar = 1
    build: str
    layers: int
    experts: int
    scale: int
    counts: str
    window_start: datetime
    window_end: datetime


@dataclass(frozen=True, slots=True)
class WorkLine:
    """Rows of one layer that were used, and what one claim earned with them. Part of WorkCredited.

    claim_id is None, and the amount 0, when the claim that was named is none of the node's in that layer, or was not
    open during the window.
    """

    layer: int
    rows: int
    claim_id: int | None
    amount_microcredits: int


@dataclass(frozen=True, slots=True)
class WorkCredited:
    """Answers of one node that a backbone used during one window, and their price. Said by: a backbone.

    key: (build, backbone boot, window, node) as one text; the same key is never paid twice. counted_by_claim: the
    backbone said which claim computed which rows; in version 1 the rows of a layer were split by the claims' lengths.
    The hold of the reward starts at `at`.
    """

    NAME: ClassVar = "work-credited"
    VERSION: ClassVar = 2
    key: str
    build: str
    node_id: str
    window_start: datetime
    window_end: datetime
    work: tuple[WorkLine, ...]
    counted_by_claim: bool
    postings: tuple[Posting, ...]
    at: datetime


@dataclass(frozen=True, slots=True)
class IncidentDeclared:
    """From starts_at to ends_at something was our fault: silence and wrong answers of that time are not held against
    anybody. Said by: the operator `by`, with the reason.
    """

    NAME: ClassVar = "incident-declared"
    VERSION: ClassVar = 1
    incident_id: int
    starts_at: datetime
    ends_at: datetime
    by: str
    reason: str
    at: datetime


@dataclass(frozen=True, slots=True)
class PolicyChanged:
    """The operator changed what steers prices and placement. Said by: the operator `by`, with the reason."""

    NAME: ClassVar = "policy-changed"
    VERSION: ClassVar = 2
    budget_microcredits_per_hour: int
    price_ceiling_microcredits_per_teraflop: int
    target_replicas: int
    maximum_replicas: int
    target_bytes_percent: int
    standby_percent: int
    by: str
    reason: str
    at: datetime


ClaimFact = ClaimGranted | ClaimReleased | ClaimExpired | SliceDelivered | ReplicaVerified | ReplicaLost
Event = (
    BuildPublished
    | BuildRetired
    | BuildRestored
    | NodeFact
    | ClaimFact
    | DemandObserved
    | WorkCredited
    | EarningsFact
    | PayoutFact
    | IncidentDeclared
    | PolicyChanged
)
EVENT_TYPES: tuple[type[Event], ...] = get_args(Event)


@dataclass(frozen=True, slots=True)
class Recorded:
    """An event with its place in history: positions run 1, 2, 3 ... over everything, versions within one stream.

    append_position: the position of the first event that was appended together with this one.
    """

    position: int
    stream: str
    version: int
    append_position: int
    event: Event


def layer_stream(build: str, layer: int) -> str:
    return f"build/{build}/layer/{layer}"


def stream_of(event: Event) -> str:
    """The stream whose version guards this event: what is decided together shares a stream."""
    match event:
        case BuildPublished():
            return f"build/{event.build.fingerprint}"
        case BuildRetired() | BuildRestored():
            return f"build/{event.fingerprint}"
        case ClaimGranted() | ClaimReleased() | ClaimExpired() | SliceDelivered() | ReplicaVerified() | ReplicaLost():
            return layer_stream(event.build, event.layer)
        case DemandObserved():
            return f"demand/{event.build}"
        case WorkCredited():
            return f"credit/{event.node_id}"
        case PolicyChanged():
            return "policy"
        case IncidentDeclared():
            return "incidents"
        case EarningsReleased() | EarningsForfeited() | EarningsRestored() | BalanceAdjusted():
            return f"ledger/{event.node_id}"
        case (
            PayoutDrafted()
            | PayoutApproved()
            | PayoutCancelled()
            | PayoutSending()
            | PayoutSent()
            | PayoutItemSettled()
            | PayoutItemFailed()
            | PayoutItemReturned()
        ):
            return f"payout/{event.batch_id}"
        case _:
            return f"node/{event.node_id}"
