"""Everything that has ever happened in the market: a closed union of frozen facts. Pure.

Each class has a stored NAME and VERSION that never change meaning; the name is not an import path, so classes may move.
`market.codec` turns events into JSON and back, `market.fold` says what each one does, `docs/events.md` lists them.
Times are aware datetimes in UTC; amounts are integer microcredits; a range [first, last) leaves `last` out.
No event holds personal data: a device's name lives in a table of its own, and can be erased while the books stay.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from market.builds import BuildDescription
from market.ledger import Posting


@dataclass(frozen=True, slots=True)
class BuildPublished:
    """A backbone offers the experts of this build. Said by: the backbone, at start."""

    NAME: ClassVar = "build-published"
    VERSION: ClassVar = 1
    build: BuildDescription
    at: datetime


@dataclass(frozen=True, slots=True)
class NodeRegistered:
    """A device enrolled and was given a token, of which only the SHA-256 is kept. Said by: the device."""

    NAME: ClassVar = "node-registered"
    VERSION: ClassVar = 1
    node_id: str
    kernel_class: str
    budget_bytes: int | None
    token_sha256: str
    at: datetime


@dataclass(frozen=True, slots=True)
class NodeTokenRotated:
    """The device's old token stopped working and a new one took its place. Said by: the owner."""

    NAME: ClassVar = "node-token-rotated"
    VERSION: ClassVar = 1
    node_id: str
    token_sha256: str
    at: datetime


@dataclass(frozen=True, slots=True)
class NodeSuspended:
    """The device may not claim any more; the owner can read the reason. Said by: an operator or the audit."""

    NAME: ClassVar = "node-suspended"
    VERSION: ClassVar = 1
    node_id: str
    reason: str
    by: str
    at: datetime


@dataclass(frozen=True, slots=True)
class NodeReinstated:
    """A suspension ended. Said by: an operator."""

    NAME: ClassVar = "node-reinstated"
    VERSION: ClassVar = 1
    node_id: str
    by: str
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

    claim_id is None, and the amount 0, when no claim of the node covered the layer during the window.
    """

    layer: int
    rows: int
    claim_id: int | None
    amount_microcredits: int


@dataclass(frozen=True, slots=True)
class WorkCredited:
    """Answers of one node that a backbone used during one window, and their price. Said by: a backbone.

    key: (build, backbone boot, window, node) as one text; the same key is never paid twice.
    """

    NAME: ClassVar = "work-credited"
    VERSION: ClassVar = 1
    key: str
    build: str
    node_id: str
    window_start: datetime
    window_end: datetime
    work: tuple[WorkLine, ...]
    postings: tuple[Posting, ...]


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


Event = (
    BuildPublished
    | NodeRegistered
    | NodeTokenRotated
    | NodeSuspended
    | NodeReinstated
    | ClaimGranted
    | ClaimReleased
    | ClaimExpired
    | SliceDelivered
    | ReplicaVerified
    | ReplicaLost
    | DemandObserved
    | WorkCredited
    | PolicyChanged
)
EVENT_TYPES: tuple[type[Event], ...] = (
    BuildPublished,
    NodeRegistered,
    NodeTokenRotated,
    NodeSuspended,
    NodeReinstated,
    ClaimGranted,
    ClaimReleased,
    ClaimExpired,
    SliceDelivered,
    ReplicaVerified,
    ReplicaLost,
    DemandObserved,
    WorkCredited,
    PolicyChanged,
)
ClaimFact = ClaimGranted | ClaimReleased | ClaimExpired | SliceDelivered | ReplicaVerified | ReplicaLost


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
        case NodeRegistered() | NodeTokenRotated() | NodeSuspended() | NodeReinstated():
            return f"node/{event.node_id}"
        case ClaimGranted() | ClaimReleased() | ClaimExpired() | SliceDelivered() | ReplicaVerified() | ReplicaLost():
            return layer_stream(event.build, event.layer)
        case DemandObserved():
            return f"demand/{event.build}"
        case WorkCredited():
            return f"credit/{event.node_id}"
        case PolicyChanged():
            return "policy"
