"""All devices in figures, for lists that can be searched and sorted: a handful of queries, however many devices."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, cast

from django.db.models import Count, F, QuerySet, Sum

from market import rows as r
from market.kinds import NodeRole
from market.ledger import NODE_PREFIX, node_accounts
from market.models import Balance, Claim, Node, NodeProfile

NodeState = Literal["working", "waiting", "away", "leaving", "paused", "banned", "erased"]


@dataclass(frozen=True)
class NodeLine:
    """One device. reason: why it was paused or banned. earned: everything it was credited and not voided."""

    node_id: str
    name: str
    role: NodeRole
    state: NodeState
    reason: str
    kernel_class: str
    slices: int
    experts: int
    size_bytes: int
    trust: int
    earned_microcredits: int
    registered_at: datetime
    leaves_at: datetime | None


@dataclass(frozen=True)
class _Held:
    slices: int = 0
    live: int = 0
    experts: int = 0
    size_bytes: int = 0


def node_lines() -> list[NodeLine]:
    """Every device, in the order of registration."""
    names = dict(NodeProfile.objects.values_list("node_id", "name"))
    nodes = list(Node.objects.order_by("registered_at", "node_id"))
    return _lines(nodes, names, _held(_open_claims()), _earned(_accounts()))


def node_line(node_id: str) -> NodeLine | None:
    """One device; None when there is none."""
    nodes = list(Node.objects.filter(node_id=node_id))
    names = dict(NodeProfile.objects.filter(node_id=node_id).values_list("node_id", "name"))
    held = _held(_open_claims().filter(node_id=node_id))
    earned = _earned(_accounts().filter(account__in=node_accounts(node_id)))
    return next(iter(_lines(nodes, names, held, earned)), None)


def has_stages() -> bool:
    """Whether a device ever registered as a stage."""
    return Node.objects.filter(role="stage").exists()


def banned_names() -> list[str]:
    """Devices in quarantine, by name."""
    banned = Node.objects.filter(quarantined=True, erased_at__isnull=True).values_list("node_id", flat=True)
    return list(NodeProfile.objects.filter(node_id__in=banned).order_by("name").values_list("name", flat=True))


def _lines(
    nodes: list[Node], names: dict[str, str], held: dict[str, "_Held"], earned: dict[str, int]
) -> list[NodeLine]:
    lines = []
    for node in nodes:
        of_node = held.get(node.node_id, _Held())
        lines.append(
            NodeLine(
                node_id=node.node_id,
                name=names.get(node.node_id, node.node_id),
                role=cast(NodeRole, node.role),
                state=_state(node, of_node),
                reason=node.suspended_reason,
                kernel_class=node.trusted_class,  # what audits saw computing; at first what it registered
                slices=of_node.slices,
                experts=of_node.experts,
                size_bytes=of_node.size_bytes,
                trust=node.trust,
                earned_microcredits=earned.get(node.node_id, 0),
                registered_at=node.registered_at,
                leaves_at=node.leaves_at,
            )
        )
    return lines


def _state(node: Node, held: _Held) -> NodeState:
    if node.erased_at is not None:
        return "erased"
    if node.quarantined:
        return "banned"
    if node.suspended_reason:
        return "paused"
    if node.leaves_at is not None:
        return "leaving"
    if held.live:
        return "working"
    return "waiting" if held.slices else "away"


def _open_claims() -> QuerySet[Claim]:
    return Claim.objects.filter(state__in=r.OPEN_STATES)


def _accounts() -> QuerySet[Balance]:
    return Balance.objects.filter(account__startswith=NODE_PREFIX)


def _held(claims: QuerySet[Claim]) -> dict[str, _Held]:
    """The same claims summed by node."""
    found: dict[str, _Held] = {}
    sums = (
        claims.values_list("node_id", "state")
        .annotate(claims=Count("claim_id"), experts=Sum(F("last") - F("first")), size=Sum("size_bytes"))
        .order_by()
    )
    for node_id, state, count, experts, size in sums:
        before = found.get(node_id, _Held())
        live = before.live + (count if state == r.LIVE else 0)
        found[node_id] = _Held(before.slices + count, live, before.experts + experts, before.size_bytes + size)
    return found


def _earned(accounts: QuerySet[Balance]) -> dict[str, int]:
    """Their sums by node."""
    sums: defaultdict[str, int] = defaultdict(int)
    for account, balance in accounts.values_list("account", "balance_microcredits"):
        sums[account.split("/")[1]] += balance
    return sums
