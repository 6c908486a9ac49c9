"""What happens to devices and their owners. Part of the closed union of `market.events`. Pure."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from market.kinds import NodeRole


@dataclass(frozen=True, slots=True)
class NodeRegistered:
    """A device enrolled and was given a token, of which only the SHA-256 is kept. Said by: the device.

    role: what it may hold, for good: experts, or stages of the dense path.
    """

    NAME: ClassVar = "node-registered"
    VERSION: ClassVar = 2
    node_id: str
    kernel_class: str
    budget_bytes: int | None
    token_sha256: str
    at: datetime
    role: NodeRole = "worker"


@dataclass(frozen=True, slots=True)
class NodeTokenRotated:
    """The device's old token stopped working and a new one took its place. Said by: the owner or an operator."""

    NAME: ClassVar = "node-token-rotated"
    VERSION: ClassVar = 2
    node_id: str
    token_sha256: str
    by: str
    reason: str
    at: datetime


@dataclass(frozen=True, slots=True)
class NodeTokenRevoked:
    """The device's token stopped working and none took its place. Said by: the owner or an operator."""

    NAME: ClassVar = "node-token-revoked"
    VERSION: ClassVar = 1
    node_id: str
    by: str
    reason: str
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
class NodeQuarantined:
    """The device gave a wrong answer: suspended, its trust gone, and work that arrives from now on earns nothing.

    Said by: the audit or an operator. Its held rewards are voided by an `earnings-forfeited` of the same append.
    """

    NAME: ClassVar = "node-quarantined"
    VERSION: ClassVar = 1
    node_id: str
    reason: str
    by: str
    at: datetime


@dataclass(frozen=True, slots=True)
class NodeReinstated:
    """A suspension or quarantine ended. Said by: an operator."""

    NAME: ClassVar = "node-reinstated"
    VERSION: ClassVar = 2
    node_id: str
    by: str
    reason: str
    at: datetime


@dataclass(frozen=True, slots=True)
class NodeAudited:
    """Answers were recomputed. Trust counts passes in a row; a failure sets it to zero. Said by: a backbone.

    kernel_class: the program that computed them: trust is its own, and another program on the device starts at zero.
    Empty: the one that the device enrolled with. passes: how many were right after the last one that was wrong;
    failures: how many were wrong.
    """

    NAME: ClassVar = "node-audited"
    VERSION: ClassVar = 2
    node_id: str
    kernel_class: str
    passes: int
    failures: int
    backbone: str
    at: datetime


@dataclass(frozen=True, slots=True)
class NodeLinked:
    """The device belongs to an account from now on; empty: to none. Said by: the owner or an operator.

    owner_id is random and says nothing; who the owner is stands in a table that can be erased.
    """

    NAME: ClassVar = "node-linked"
    VERSION: ClassVar = 1
    node_id: str
    owner_id: str
    by: str
    reason: str
    at: datetime


@dataclass(frozen=True, slots=True)
class NodeLeaving:
    """The device will leave at a known time: it claims nothing new and then gives all back.

    Said by: the owner, or an operator who drains it.
    """

    NAME: ClassVar = "node-leaving"
    VERSION: ClassVar = 2
    node_id: str
    leaves_at: datetime
    reason: str
    by: str
    at: datetime


@dataclass(frozen=True, slots=True)
class NodeStayed:
    """The device does not leave after all, or has come back. Said by: the owner."""

    NAME: ClassVar = "node-stayed"
    VERSION: ClassVar = 1
    node_id: str
    at: datetime


@dataclass(frozen=True, slots=True)
class NodeMessaged:
    """A few words to the owner of the device. They stay for ever: no names, no addresses. Said by: an operator."""

    NAME: ClassVar = "node-messaged"
    VERSION: ClassVar = 1
    node_id: str
    text: str
    by: str
    at: datetime


@dataclass(frozen=True, slots=True)
class NodeErased:
    """What was personal about the device was deleted; its books stay. Said by: the owner or an operator."""

    NAME: ClassVar = "node-erased"
    VERSION: ClassVar = 1
    node_id: str
    by: str
    reason: str
    at: datetime


NodeFact = (
    NodeRegistered
    | NodeTokenRotated
    | NodeTokenRevoked
    | NodeSuspended
    | NodeQuarantined
    | NodeReinstated
    | NodeAudited
    | NodeLinked
    | NodeLeaving
    | NodeStayed
    | NodeMessaged
    | NodeErased
)
