"""Who may open a session, and what of it backbones may use: decisions over plain values.

The market is behind `Authenticator`; `relay/authenticate.py` has the real one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from relay.codes import RejectCode
from relay.errors import MessageError, Rejected
from relay.frames import PROTOCOL_VERSION, Frame
from relay.messages import read_hello
from relay.records import Hello, Replica, ReplicaState, SessionRole


@dataclass(frozen=True)
class Node:
    node_id: str
    name: str
    suspended: bool
    role: SessionRole = "worker"


@dataclass(frozen=True)
class Claim:
    """An open claim of a node. sha256: the digest that was delivered, None while nothing was."""

    claim_id: int
    build: str
    layer: int
    first: int
    last: int
    fence: int
    state: ReplicaState
    sha256: str | None


@dataclass(frozen=True)
class Standing:
    """What the market knows of a token at one moment."""

    node: Node
    claims: Sequence[Claim] = ()


class Authenticator(Protocol):
    """The questions a relay asks. All may raise; the caller decides what an unreachable market means."""

    def is_backbone(self, token: str) -> bool: ...

    async def standing(self, token: str) -> Standing | None: ...

    async def knows_build(self, build: str) -> bool: ...

    async def mark_seen(self, node_id: str) -> None: ...

    async def mark_left(self, node_id: str) -> None: ...

    async def take_over(self, node_id: str, session: str) -> None:
        """This session of the node is its newest, in all relay processes."""
        ...

    async def is_newest(self, node_id: str, session: str) -> bool:
        """False once another session took over."""
        ...


def check_hello(frame: Frame) -> Hello:
    """Raises Rejected with bad_hello or protocol_version."""
    try:
        hello = read_hello(frame)
    except MessageError as error:
        raise Rejected(RejectCode.BAD_HELLO, f"HELLO cannot be read: {error}") from None
    if hello.protocol != PROTOCOL_VERSION:
        raise Rejected(
            RejectCode.PROTOCOL_VERSION,
            f"this relay speaks protocol {PROTOCOL_VERSION}, not {hello.protocol}; update the older side",
        )
    return hello


async def admit_backbone(hello: Hello, authenticator: Authenticator) -> None:
    """Raises Rejected unless the token is the backbone credential."""
    if authenticator.is_backbone(hello.token):
        return
    if await authenticator.standing(hello.token) is not None:
        raise Rejected(RejectCode.WRONG_ROLE, "this is a device token; a backbone needs the backbone credential")
    raise Rejected(RejectCode.BAD_TOKEN, "this is not the backbone credential")


async def admit_worker(hello: Hello, authenticator: Authenticator, role: SessionRole = "worker") -> Standing:
    """The node behind the token with its claims; role: as what it comes. Raises Rejected."""
    if authenticator.is_backbone(hello.token):
        raise Rejected(RejectCode.WRONG_ROLE, f"this is the backbone credential; a {role} needs a device token")
    standing = check_standing(await authenticator.standing(hello.token))
    if standing.node.role != role:
        raise Rejected(RejectCode.WRONG_ROLE, f"this device registered as a {standing.node.role}, not as a {role}")
    if not await authenticator.knows_build(hello.build):
        raise Rejected(
            RejectCode.BUILD_MISMATCH,
            f"build {hello.build} is not on offer here; read /api/demand and claim again",
        )
    return standing


def check_standing(standing: Standing | None) -> Standing:
    """Raises Rejected when nobody has the token, or its node is suspended."""
    if standing is None:
        raise Rejected(RejectCode.BAD_TOKEN, "no node has this token; register with POST /api/nodes")
    if standing.node.suspended:
        raise Rejected(RejectCode.SUSPENDED, "this node is suspended; GET /api/me says why")
    return standing


def usable_replicas(held: Iterable[Replica], claims: Iterable[Claim], build: str) -> tuple[Replica, ...]:
    """The replicas that the worker holds and the market has leased to it, for this build, with the market's state.

    A claim of which nothing was delivered yet has no digest to compare; its replica can only be pending.
    """
    leased = {claim.claim_id: claim for claim in claims if claim.build == build}
    usable = []
    for replica in held:
        claim = leased.pop(replica.claim_id, None)
        if claim is not None and _is_of(replica, claim):
            usable.append(replica.with_state(claim.state))
    return tuple(usable)


def _is_of(replica: Replica, claim: Claim) -> bool:
    same_range = (replica.layer, replica.first, replica.last) == (claim.layer, claim.first, claim.last)
    return same_range and replica.fence == claim.fence and claim.sha256 in (None, replica.sha256)
