"""Claims: grant, release, expiry.

A claim is granted by a conditional append on the stream of its layer, at the version that was read under the append
lock; should a writer have bypassed the lock, the unique (stream, version) refuses, and the decision is made again.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import cast

from django.conf import settings
from django.db.models import Max
from django.utils import timezone

from market import presence, queries, snapshots, store
from market import rows as r
from market.claim_rules import RangeWish, grants, wished_runs, within_budget
from market.commands.ending import end_events, expiry_events
from market.errors import (
    BadRequest,
    ClaimEnded,
    Conflict,
    Leaving,
    MarketError,
    NoBuilds,
    Suspended,
    UnknownBuild,
    UnknownClaim,
    UnknownNode,
    WrongKind,
)
from market.events import layer_stream
from market.kinds import KIND_OF_ROLE, RUNS_AT_ONCE, BuildKind, NodeRole
from market.models import Claim, Node
from market.placement import BuildMarket, Run, best_runs, why_no_runs

ATTEMPTS = 5
RANGES_LIMIT = 64
# All of them can end in one append: two events each, and the suspension.
OPEN_CLAIMS_LIMIT = 400


def claim_ranges(
    node_id: str, ranges: Sequence[RangeWish], build: str | None = None, *, now: datetime | None = None
) -> list[queries.ClaimView]:
    """All of the ranges or none. `build` may be left out while there is only one.

    Raises RangeOutside, AlreadyHeld, OverSubscribed, BudgetExhausted, Suspended, UnknownBuild, WrongKind, UnknownNode,
    Conflict.
    """
    if not 0 < len(ranges) <= RANGES_LIMIT:
        raise BadRequest(f"a claim names 1 to {RANGES_LIMIT} ranges")

    def attempt() -> set[int]:
        with store.writing() as writer:
            kind = _checked_kind(node_id)
            market = snapshots.build_market(_on_offer(build, kind) if build else _only_build(kind), node_id)
            runs = wished_runs(market, ranges)
            return _grant(writer, node_id, market, runs, now or timezone.now(), all_or_none=True)

    return _views(node_id, _retried(attempt))


def claim_best(
    node_id: str,
    budget_bytes: int,
    build: str | None = None,
    *,
    types: frozenset[str] | None = None,
    now: datetime | None = None,
) -> list[queries.ClaimView]:
    """What pays best within a memory budget, all in one build. `types`: ggml types that the device can compute.

    Raises BudgetTooSmall, NoWork or a subclass, BudgetExhausted, Suspended, UnknownBuild, WrongKind, UnknownNode,
    Conflict.
    """

    def attempt() -> set[int]:
        with store.writing() as writer:
            kind = _checked_kind(node_id)
            market, runs = best_build(node_id, kind, budget_bytes, build, types)
            return _grant(writer, node_id, market, runs, now or timezone.now(), all_or_none=False)

    return _views(node_id, _retried(attempt))


def best_build(
    node_id: str, kind: BuildKind, budget_bytes: int, build: str | None, types: frozenset[str] | None
) -> tuple[BuildMarket, list[Run]]:
    """The build whose best runs pay most, the older one on a tie; raises why there is nothing when there is nothing."""
    fingerprints = [_on_offer(build, kind)] if build else [known.fingerprint for known in queries.builds(kind)]
    best: tuple[int, BuildMarket, list[Run]] | None = None
    reason: MarketError = NoBuilds("no build is on offer yet; ask again later")
    for fingerprint in fingerprints:
        market = snapshots.build_market(fingerprint, node_id, types)
        runs = best_runs(market, budget_bytes, RUNS_AT_ONCE[kind])
        if not runs:
            reason = why_no_runs(market, budget_bytes)
            continue
        price = sum(run.price_microcredits_per_hour for run in runs)
        if best is None or price > best[0]:
            best = (price, market, runs)
    if best is None:
        raise reason
    return best[1], best[2]


def _views(node_id: str, claim_ids: set[int]) -> list[queries.ClaimView]:
    """Read after the commit: others need not wait for it."""
    return [claim for claim in queries.node_claims(node_id) if claim.claim_id in claim_ids]


def _retried(attempt: Callable[[], set[int]]) -> set[int]:
    for _ in range(ATTEMPTS - 1):
        try:
            return attempt()
        except Conflict:
            continue
    return attempt()


def _checked_kind(node_id: str) -> BuildKind:
    """The kind of builds that the node may claim now. Raises UnknownNode, Suspended, Leaving."""
    node = Node.objects.filter(node_id=node_id).first()
    if node is None:
        raise UnknownNode(f"no node {node_id!r} has registered")
    if node.suspended_reason:
        raise Suspended(f"this device is suspended: {node.suspended_reason}")
    if node.leaves_at is not None:
        raise Leaving(f"this device leaves at {node.leaves_at.isoformat()}; say that it stays, then claim")
    return KIND_OF_ROLE[cast(NodeRole, node.role)]


def _on_offer(build: str, kind: BuildKind) -> str:
    """The same build. Raises UnknownBuild, WrongKind."""
    row = queries.build_row(build)
    if row.retired_at is not None:
        raise UnknownBuild(f"build {build} was retired; ask /api/demand for the builds on offer")
    if row.kind != kind:
        raise WrongKind(f"build {build} offers {row.kind}, this device holds {kind}")
    return build


def _only_build(kind: BuildKind) -> str:
    builds = queries.builds(kind)
    if not builds:
        raise NoBuilds("no build is on offer yet; ask again later")
    if len(builds) > 1:
        raise BadRequest("several builds are on offer: say which one in `build`")
    return builds[0].fingerprint


def _grant(
    writer: store.Writer, node_id: str, market: BuildMarket, runs: Sequence[Run], now: datetime, *, all_or_none: bool
) -> set[int]:
    """Appends one ClaimGranted per run, in the order of streams; the ids of the claims."""
    if Claim.objects.filter(node_id=node_id, state__in=r.OPEN_STATES).count() + len(runs) > OPEN_CLAIMS_LIMIT:
        raise BadRequest(f"a device holds at most {OPEN_CLAIMS_LIMIT} claims")
    build = market.build.fingerprint
    runs = within_budget(runs, snapshots.purse(now, market.policy), all_or_none=all_or_none)
    read = store.heads({layer_stream(build, run.layer) for run in runs}).versions
    last_claim_id = Claim.objects.aggregate(last=Max("claim_id"))["last"] or 0
    granted = grants(build, node_id, runs, last_claim_id, read, now)
    writer.append(granted, expected=read)
    return {event.claim_id for event in granted}


def release_claim(node_id: str, claim_id: int, *, reason: str = "owner", now: datetime | None = None) -> None:
    """Gives a claim back; doing it twice is harmless. Raises UnknownClaim when the node never had it."""
    with store.writing() as writer:
        claim = queries.claim(claim_id)
        if claim is not None and claim.node_id == node_id:
            writer.append(end_events(claim, reason, now or timezone.now()))
        elif not Claim.objects.filter(claim_id=claim_id, node_id=node_id).exists():
            raise UnknownClaim(f"this device has no claim {claim_id}")


def open_claim(claim_id: int, node_id: str | None = None) -> queries.ClaimView:
    """Raises UnknownClaim or ClaimEnded."""
    claim = queries.claim(claim_id)
    if claim is not None and node_id in (None, claim.node_id):
        return claim
    if not Claim.objects.filter(claim_id=claim_id, **({"node_id": node_id} if node_id else {})).exists():
        raise UnknownClaim(f"there is no such claim: {claim_id}")
    raise ClaimEnded(f"claim {claim_id} was released or has expired; claim again")


def expire_leases(now: datetime) -> list[int]:
    """Ends every claim whose node was not seen for LEASE_SECONDS; the ids of the claims that ended.

    Presence is read before the append lock is taken, and again under it for the few that look silent. Placement learns
    which devices have become quiet.
    """
    claims = queries.all_open_claims()
    presence.note_silent(_quiet(claims, now))
    if not _silent(claims, now):
        return []
    with store.writing() as writer:
        silent = _silent(queries.all_open_claims(), now)
        # Two events per claim at most; the rest ends at the next tick.
        silent = silent[: store.APPEND_LIMIT // 2]
        ending = [expiry_events(claim, claim.silent_since, now) for claim in silent]
        if ending:
            writer.append([event for events in ending for event in events])
    return [claim.claim_id for claim in silent]


def _quiet(claims: Sequence[queries.ClaimView], now: datetime) -> set[str]:
    """Devices that are no coverage: not seen for a part of their lease, or not since their connection closed."""
    left = presence.left({claim.node_id for claim in claims})
    waited = timedelta(seconds=settings.LEASE_SECONDS) * presence.SILENT_SHARE
    return {
        claim.node_id
        for claim in claims
        if claim.silent_since <= max(now - waited, left.get(claim.node_id, now - waited))
    }


def _silent(claims: Sequence[queries.ClaimView], now: datetime) -> list[queries.ClaimView]:
    return [claim for claim in claims if claim.expires_at <= now]
