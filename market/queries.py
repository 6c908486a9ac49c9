"""Everything that others may ask the market: plain values, never model instances. Cheap enough to call per request."""

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, cast

import numpy as np
from django.conf import settings
from django.db.models import QuerySet, Sum
from django.utils import timezone
from numpy.typing import NDArray

from market import presence, projections
from market import rows as r
from market.builds import BuildDescription
from market.coverage import CoverageSummary, Replicas, count_replicas, summary
from market.errors import UnknownBuild
from market.hours import allowance, start_of_hour
from market.incidents import extended, incident_spans
from market.kinds import BuildKind, NodeRole
from market.ledger import TREASURY, node_account, node_accounts
from market.models import (
    Balance,
    Build,
    Claim,
    CreditedRows,
    CurrentPolicy,
    Demand,
    Layer,
    Node,
    NodeProfile,
    OwnerProfile,
    Posting,
)
from market.policy import Policy

TOKEN_LENGTH_LIMIT = 128


@dataclass(frozen=True)
class NodeView:
    node_id: str
    name: str
    suspended: bool
    suspended_reason: str = ""
    kernel_class: str = ""
    budget_bytes: int | None = None
    quarantined: bool = False
    trust: int = 0
    trusted_class: str = ""
    owner_id: str = ""
    leaves_at: datetime | None = None
    erased: bool = False
    role: NodeRole = "worker"


@dataclass(frozen=True)
class ClaimView:
    """A claim that is pending or live. sha256: the digest that was delivered or verified last.

    silent_since: when the node was last seen, or from when on its silence can be noticed. expires_at: when the lease
    ends unless the node is seen again.
    """

    claim_id: int
    build: str
    layer: int
    first: int
    last: int
    fence: int
    state: Literal["pending", "live"]
    sha256: str | None
    silent_since: datetime
    expires_at: datetime
    node_id: str
    size_bytes: int
    rate_microcredits_per_teraflop: int
    cap_microcredits_per_hour: int
    earned_microcredits: int
    cap_reached: bool


@dataclass(frozen=True)
class CreditedView:
    """Rows credited to one node in one layer, over all time."""

    node_id: str
    layer: int
    rows: int
    amount_microcredits: int


def token_sha256(token: str) -> str:
    """What is stored of a token. Tokens are 256 random bits, so one fast hash is enough."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def authenticate(token: str) -> NodeView | None:
    """The node of a token, suspended ones too; None when nobody has it.

    The look-up compares digests inside the index: what an attacker learns from its time is about digests of guesses,
    which they cannot choose, not about tokens.
    """
    if not token or len(token) > TOKEN_LENGTH_LIMIT:
        return None
    row = Node.objects.filter(token_sha256=token_sha256(token)).first()
    return None if row is None else _node_view(row)


def node(node_id: str) -> NodeView | None:
    row = Node.objects.filter(node_id=node_id).first()
    return None if row is None else _node_view(row)


def _node_view(row: Node) -> NodeView:
    profile = NodeProfile.objects.filter(node_id=row.node_id).first()
    return NodeView(
        node_id=row.node_id,
        name=profile.name if profile else "",
        suspended=bool(row.suspended_reason),
        suspended_reason=row.suspended_reason,
        kernel_class=row.kernel_class,
        budget_bytes=row.budget_bytes,
        quarantined=row.quarantined,
        trust=row.trust,
        trusted_class=row.trusted_class,
        owner_id=row.owner_id,
        leaves_at=row.leaves_at,
        erased=row.erased_at is not None,
        role=cast(NodeRole, row.role),
    )


def has_payee(owner_id: str) -> bool:
    """Whether the account, if it is one, has said where its money goes."""
    return bool(owner_id) and OwnerProfile.objects.filter(owner_id=owner_id).exclude(payee="").exists()


def node_names(node_ids: Iterable[str]) -> dict[str, str]:
    return dict(NodeProfile.objects.filter(node_id__in=list(node_ids)).values_list("node_id", "name"))


def node_claims(node_id: str) -> list[ClaimView]:
    """Open claims of a node, oldest first."""
    return _views(Claim.objects.filter(node_id=node_id, state__in=r.OPEN_STATES).order_by("claim_id"))


def claim(claim_id: int) -> ClaimView | None:
    """An open claim; None when it ended or never was."""
    found = _views(Claim.objects.filter(claim_id=claim_id, state__in=r.OPEN_STATES))
    return found[0] if found else None


def open_claims(build: str) -> list[ClaimView]:
    """All open claims of a build, oldest first."""
    return _views(Claim.objects.filter(build=build, state__in=r.OPEN_STATES).order_by("claim_id"))


def open_claim_counts(build: str) -> tuple[Counter[str], set[str]]:
    """Open claims of a build by state, and the nodes of live ones: no view is made of each."""
    rows = list(Claim.objects.filter(build=build, state__in=r.OPEN_STATES).values_list("state", "node_id"))
    return Counter(state for state, _ in rows), {node_id for state, node_id in rows if state == r.LIVE}


def all_open_claims() -> list[ClaimView]:
    """Open claims of every build, oldest first."""
    return _views(Claim.objects.filter(state__in=r.OPEN_STATES).order_by("claim_id"))


def has_claimed(node_id: str, build: str, layer: int, first: int, last: int) -> bool:
    """Whether the node has an open claim of exactly this range: what the slice downloads ask."""
    return Claim.objects.filter(
        node_id=node_id, build=build, layer=layer, first=first, last=last, state__in=r.OPEN_STATES
    ).exists()


def _views(claims: Iterable[Claim]) -> list[ClaimView]:
    rows = list(claims)
    now = timezone.now()
    lease = timedelta(seconds=settings.LEASE_SECONDS)
    seen = presence.last_seen({row.node_id for row in rows})
    noticed = presence.recording_since(now)
    # Incidents make leases longer: their time does not count.
    spans = incident_spans(now - lease) if rows else []
    views = []
    for row in rows:
        since = max(row.granted_at, seen.get(row.node_id) or noticed)
        views.append(_claim_view(row, since, extended(since, lease, spans), now))
    return views


def _claim_view(row: Claim, silent_since: datetime, expires_at: datetime, now: datetime) -> ClaimView:
    this_hour = start_of_hour(now)
    allowed = allowance(row.cap_microcredits_per_hour, row.first_hour_microcredits, row.granted_at, this_hour)
    return ClaimView(
        claim_id=row.claim_id,
        build=row.build,
        layer=row.layer,
        first=row.first,
        last=row.last,
        fence=row.fence,
        state="live" if row.state == r.LIVE else "pending",
        sha256=row.sha256 or None,
        silent_since=silent_since,
        expires_at=expires_at,
        node_id=row.node_id,
        size_bytes=row.size_bytes,
        rate_microcredits_per_teraflop=row.rate_microcredits_per_teraflop,
        cap_microcredits_per_hour=row.cap_microcredits_per_hour,
        earned_microcredits=row.earned_microcredits,
        cap_reached=row.hour == this_hour and row.hour_microcredits >= allowed,
    )


def builds(kind: BuildKind = "experts") -> list[BuildDescription]:
    """All builds of a kind on offer, oldest first."""
    return [described(row) for row in on_offer().filter(kind=kind).order_by("published_at", "fingerprint")]


def on_offer() -> QuerySet[Build]:
    """Published builds of every kind that were not retired."""
    return Build.objects.filter(retired_at__isnull=True)


def build(fingerprint: str) -> BuildDescription:
    """Raises UnknownBuild."""
    return description_of(*build_rows(fingerprint))


def described(row: Build) -> BuildDescription:
    """The description of a published build, without the replicas of its layers."""
    layers = Layer.objects.filter(build=row.fingerprint).order_by("ordinal")
    return _description(row, list(layers.values_list("layer", "expert_bytes", "expert_types")))


def build_rows(fingerprint: str) -> tuple[Build, list[Layer]]:
    """The rows of a build and of its layers, in order. Raises UnknownBuild."""
    return build_row(fingerprint), list(Layer.objects.filter(build=fingerprint).order_by("ordinal"))


def build_row(fingerprint: str) -> Build:
    """Raises UnknownBuild."""
    row = Build.objects.filter(fingerprint=fingerprint).first()
    if row is None:
        raise UnknownBuild(f"no build {fingerprint!r} has been published; ask /api/demand for the builds on offer")
    return row


def description_of(row: Build, layers: list[Layer]) -> BuildDescription:
    return _description(row, [(layer.layer, layer.expert_bytes, layer.expert_types) for layer in layers])


def _description(row: Build, layers: list[tuple[int, int, str]]) -> BuildDescription:
    """layers: (number, bytes of an expert, ggml types with commas between)."""
    return BuildDescription(
        fingerprint=row.fingerprint,
        name=row.name,
        architecture=row.architecture,
        n_embd=row.n_embd,
        n_ff=row.n_ff,
        experts_per_layer=row.experts_per_layer,
        experts_used=row.experts_used,
        layers=tuple(layer for layer, _, _ in layers),
        expert_bytes=tuple(size for _, size, _ in layers),
        expert_types=tuple(tuple(types.split(",")) for _, _, types in layers),
        kind=cast(BuildKind, row.kind),
    )


def replicas_of(layers: list[Layer]) -> Replicas:
    return np.stack([projections.replicas_from_bytes(layer.replicas) for layer in layers])


def coverage(build: str) -> Replicas:
    """Replicas that are pending or live: (layers, experts) uint16, rows in the build's order of layers.

    Raises UnknownBuild.
    """
    return replicas_of(build_rows(build)[1])


def coverage_summary(build: str) -> CoverageSummary:
    """Raises UnknownBuild."""
    return summary(coverage(build), policy().target_replicas)


def live_coverage(build: str) -> Replicas:
    """Verified replicas only: (layers, experts) uint16. Raises UnknownBuild."""
    row, layers = build_rows(build)
    ordinal = {layer.layer: layer.ordinal for layer in layers}
    live = Claim.objects.filter(build=build, state=r.LIVE).values_list("layer", "first", "last")
    return count_replicas(
        [(ordinal[layer], first, last) for layer, first, last in live], len(layers), row.experts_per_layer
    )


def demand(build: str) -> NDArray[np.float64]:
    """How often the router asks for each expert: (layers, experts) float64 rows per hour. Raises UnknownBuild."""
    row, layers = build_rows(build)
    return demand_of(row, len(layers))


def demand_of(row: Build, layers: int) -> NDArray[np.float64]:
    stored = Demand.objects.filter(build=row.fingerprint).first()
    if stored is None:
        return np.zeros((layers, row.experts_per_layer))
    return projections.demand_from_bytes(stored.rows_per_hour, layers, row.experts_per_layer)


def policy() -> Policy:
    """The policy in force: the last PolicyChanged, else the defaults with the target from the settings."""
    row = CurrentPolicy.objects.first()
    if row is None:
        maximum = max(Policy.maximum_replicas, settings.TARGET_REPLICAS)
        return Policy(target_replicas=settings.TARGET_REPLICAS, maximum_replicas=maximum)
    return Policy(
        row.budget_microcredits_per_hour,
        row.price_ceiling_microcredits_per_teraflop,
        row.target_replicas,
        row.maximum_replicas,
        row.target_bytes_percent,
        row.standby_percent,
    )


def credited_rows(build: str) -> list[CreditedView]:
    """Rows credited per node and layer: what must equal the rows that the backbone used."""
    rows = CreditedRows.objects.filter(build=build).order_by("node_id", "layer")
    return [CreditedView(row.node_id, row.layer, row.rows, row.amount_microcredits) for row in rows]


def rows_of(node_id: str) -> int:
    """Rows credited to a node over all time."""
    return CreditedRows.objects.filter(node_id=node_id).aggregate(all=Sum("rows"))["all"] or 0


def balances(node_id: str) -> dict[str, int]:
    """Microcredits of a node by kind of account, for example {"pending": 12}."""
    prefix = node_account(node_id, "")
    rows = Balance.objects.filter(account__in=node_accounts(node_id))
    return {row.account.removeprefix(prefix): row.balance_microcredits for row in rows}


def treasury_microcredits() -> int:
    """What the treasury has paid out, as a negative number."""
    return Posting.objects.filter(account=TREASURY).aggregate(total=Sum("amount_microcredits"))["total"] or 0
