"""Claims: grant, release, expiry.

A claim is granted by a conditional append on the stream of its layer, at the version that was read under the append
lock; should a writer have bypassed the lock, the unique (stream, version) refuses, and the decision is made again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Max
from django.utils import timezone

from market import queries, snapshots, store
from market.commands.ending import end_events, expiry_events
from market.errors import (
    AlreadyHeld,
    BadRequest,
    BudgetExhausted,
    ClaimEnded,
    Conflict,
    MarketError,
    NoBuilds,
    OverSubscribed,
    RangeOutside,
    Suspended,
    UnknownClaim,
    UnknownNode,
)
from market.events import ClaimGranted, Event, layer_stream
from market.models import Claim
from market.placement import RUN_LIMIT, BuildMarket, Run, best_runs, run_at, why_no_runs

ATTEMPTS = 5
RANGES_LIMIT = 64
# All of them can end in one append: two events each, and the suspension.
OPEN_CLAIMS_LIMIT = 400


@dataclass(frozen=True)
class RangeWish:
    """Experts [first, last) of a layer that a device asks for."""

    layer: int
    first: int
    last: int


def claim_ranges(
    node_id: str, ranges: Sequence[RangeWish], build: str | None = None, *, now: datetime | None = None
) -> list[queries.ClaimView]:
    """All of the ranges or none. `build` may be left out while there is only one.

    Raises RangeOutside, AlreadyHeld, OverSubscribed, BudgetExhausted, Suspended, UnknownBuild, UnknownNode, Conflict.
    """
    if not 0 < len(ranges) <= RANGES_LIMIT:
        raise BadRequest(f"a claim names 1 to {RANGES_LIMIT} ranges")

    def attempt() -> list[queries.ClaimView]:
        with store.writing() as writer:
            _check_node(node_id)
            market = snapshots.build_market(build or _only_build(), node_id)
            runs = _wished_runs(market, ranges)
            return _grant(writer, node_id, market, runs, now or timezone.now(), all_or_none=True)

    return _retried(attempt)


def claim_best(
    node_id: str,
    budget_bytes: int,
    build: str | None = None,
    *,
    types: frozenset[str] | None = None,
    now: datetime | None = None,
) -> list[queries.ClaimView]:
    """What pays best within a memory budget, all in one build. `types`: ggml types that the device can compute.

    Raises BudgetTooSmall, NoWork or a subclass, BudgetExhausted, Suspended, UnknownBuild, UnknownNode, Conflict.
    """

    def attempt() -> list[queries.ClaimView]:
        with store.writing() as writer:
            _check_node(node_id)
            market, runs = best_build(node_id, budget_bytes, build, types)
            return _grant(writer, node_id, market, runs, now or timezone.now(), all_or_none=False)

    return _retried(attempt)


def best_build(
    node_id: str, budget_bytes: int, build: str | None, types: frozenset[str] | None
) -> tuple[BuildMarket, list[Run]]:
    """The build whose best runs pay most, the older one on a tie; raises why there is nothing when there is nothing."""
    fingerprints = [build] if build else [known.fingerprint for known in queries.builds()]
    best: tuple[int, BuildMarket, list[Run]] | None = None
    reason: MarketError = NoBuilds("no build is on offer yet; ask again later")
    for fingerprint in fingerprints:
        market = snapshots.build_market(fingerprint, node_id, types)
        runs = best_runs(market, budget_bytes, RANGES_LIMIT)
        if not runs:
            reason = why_no_runs(market, budget_bytes)
            continue
        price = sum(run.price_microcredits_per_hour for run in runs)
        if best is None or price > best[0]:
            best = (price, market, runs)
    if best is None:
        raise reason
    return best[1], best[2]


def _retried(attempt: Callable[[], list[queries.ClaimView]]) -> list[queries.ClaimView]:
    for _ in range(ATTEMPTS - 1):
        try:
            return attempt()
        except Conflict:
            continue
    return attempt()


def _check_node(node_id: str) -> None:
    node = queries.node(node_id)
    if node is None:
        raise UnknownNode(f"no node {node_id!r} has registered")
    if node.suspended:
        raise Suspended(f"this device is suspended: {node.suspended_reason}")


def _only_build() -> str:
    builds = queries.builds()
    if not builds:
        raise NoBuilds("no build is on offer yet; ask again later")
    if len(builds) > 1:
        raise BadRequest("several builds are on offer: say which one in `build`")
    return builds[0].fingerprint


def _wished_runs(market: BuildMarket, ranges: Sequence[RangeWish]) -> list[Run]:
    """Checks each range against the market as the ranges before it leave it, and prices it."""
    runs = []
    for wish in ranges:
        row = market.build.row_of(wish.layer)
        if row is None:
            raise RangeOutside(f"layer {wish.layer} is not on offer in build {market.build.fingerprint}")
        if not 0 <= wish.first < wish.last <= market.build.experts_per_layer or wish.last - wish.first > RUN_LIMIT:
            raise RangeOutside(
                f"experts {wish.first} to {wish.last} of layer {wish.layer}: a range has 1 to {RUN_LIMIT} experts "
                f"between 0 and {market.build.experts_per_layer}"
            )
        where = (row, slice(wish.first, wish.last))
        if market.held[where].any():
            raise AlreadyHeld(f"this device has claimed experts of layer {wish.layer} in that range already")
        if (market.replicas[where] >= market.policy.maximum_replicas).any():
            raise OverSubscribed(f"experts of layer {wish.layer} in that range have enough replicas; ask for others")
        runs.append(run_at(market, row, wish.first, wish.last))
        market.replicas[where] += 1
        market.held[where] = True
    return runs


def _within_budget(runs: Sequence[Run], now: datetime, *, all_or_none: bool) -> list[Run]:
    """The runs with caps cut so that all open claims together stay within the budget."""
    remaining = snapshots.remaining_budget(now)
    affordable = []
    for run in runs:
        cap = min(run.price_microcredits_per_hour, remaining)
        if cap <= 0:
            break
        remaining -= cap
        affordable.append(replace(run, price_microcredits_per_hour=cap))
    if not affordable or (all_or_none and len(affordable) < len(runs)):
        raise BudgetExhausted("the budget for this hour is reserved by other devices; ask again later")
    return affordable


def _grant(
    writer: store.Writer, node_id: str, market: BuildMarket, runs: Sequence[Run], now: datetime, *, all_or_none: bool
) -> list[queries.ClaimView]:
    """Appends one ClaimGranted per run, in the order of streams."""
    if Claim.objects.filter(node_id=node_id, state__in=("pending", "live")).count() + len(runs) > OPEN_CLAIMS_LIMIT:
        raise BadRequest(f"a device holds at most {OPEN_CLAIMS_LIMIT} claims")
    build = market.build.fingerprint
    runs = sorted(_within_budget(runs, now, all_or_none=all_or_none), key=lambda run: (run.layer, run.first))
    read = {run.layer: writer.version(layer_stream(build, run.layer)) for run in runs}
    fences = dict(read)
    claim_id = Claim.objects.aggregate(last=Max("claim_id"))["last"] or 0
    granted: list[Event] = []
    for run in runs:
        claim_id += 1
        # The version that this event will have in its stream: it only grows, and nobody else can get it.
        fences[run.layer] += 1
        granted.append(
            ClaimGranted(
                claim_id=claim_id,
                fence=fences[run.layer],
                node_id=node_id,
                build=build,
                layer=run.layer,
                first=run.first,
                last=run.last,
                size_bytes=run.size_bytes,
                rate_microcredits_per_teraflop=run.rate_microcredits_per_teraflop,
                cap_microcredits_per_hour=run.price_microcredits_per_hour,
                at=now,
            )
        )
    writer.append(granted, expected={layer_stream(build, layer): version for layer, version in read.items()})
    new = range(claim_id - len(runs) + 1, claim_id + 1)
    return [claim for claim in queries.node_claims(node_id) if claim.claim_id in new]


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

    Presence is read before the append lock is taken, and again under it for the few that look silent.
    """
    if not _silent(queries.all_open_claims(), now):
        return []
    lease = timedelta(seconds=settings.LEASE_SECONDS)
    with store.writing() as writer:
        silent = _silent(queries.all_open_claims(), now)
        # Two events per claim at most; the rest ends at the next tick.
        silent = silent[: store.APPEND_LIMIT // 2]
        ending = [expiry_events(claim, claim.expires_at - lease, now) for claim in silent]
        if ending:
            writer.append([event for events in ending for event in events])
    return [claim.claim_id for claim in silent]


def _silent(claims: Sequence[queries.ClaimView], now: datetime) -> list[queries.ClaimView]:
    return [claim for claim in claims if claim.expires_at <= now]
