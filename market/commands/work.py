"""What a backbone reports: demand that its router saw, and work that it used."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from django.db.models import Q
from numpy.typing import NDArray

from market import queries, store
from market.builds import BuildDescription
from market.demand import pack_counts
from market.errors import BadRequest, KeyReused, RangeOutside, UnknownNode
from market.events import DemandObserved, WorkCredited, WorkLine
from market.hours import allowance, hour_of
from market.ledger import check_balanced, credit_postings
from market.models import Claim
from market.pricing import work_price

KEY_LIMIT = 200
ROWS_LIMIT = 1 << 40
WINDOW_LIMIT_SECONDS = 24 * 3600


@dataclass(frozen=True)
class CreditResult:
    """event_id: position of the WorkCredited event, the same on every retry; `repeated`: it was there before."""

    event_id: int
    amount_microcredits: int
    repeated: bool


def observe_demand(
    build: str,
    counts: NDArray[np.integer],
    window_start: datetime,
    window_end: datetime,
    *,
    key: str | None = None,
) -> int:
    """How often the router chose each expert in a window: counts (layers, experts) in the build's order of layers.

    The position of the event. Raises UnknownBuild, and BadRequest for a wrong shape, counts or window.
    """
    _check_window(window_start, window_end)
    packed, scale = pack_counts(counts)
    description = queries.build(build)
    shape = (len(description.layers), description.experts_per_layer)
    if counts.shape != shape:
        raise BadRequest(f"counts have shape {counts.shape}, the build has {shape}")
    event = DemandObserved(build, *shape, scale, packed, window_start, window_end)
    return store.append([event], key=key).position


def credit_work(
    key: str,
    build: str,
    node_id: str,
    window_start: datetime,
    window_end: datetime,
    rows_by_layer: Iterable[tuple[int, int]],
) -> CreditResult:
    """Pays a node for rows that a backbone used during a window; the same key is never paid twice.

    A row costs its known FLOPs at the rate of the claim that covered its layer during the window, also when the claim
    has ended since; a claim earns no more per clock hour than its cap. Rows that no claim covered are booked and paid
    with zero, so that credited rows always equal used rows. Where a node held several claims in a layer, its rows are
    split by their lengths. Raises BadRequest, UnknownBuild, UnknownNode, RangeOutside, KeyReused.
    """
    if not 0 < len(key) <= KEY_LIMIT:
        raise BadRequest(f"a key has 1 to {KEY_LIMIT} characters")
    _check_window(window_start, window_end)
    rows = _merged(rows_by_layer)
    with store.writing() as writer:
        appended = store.find(key) or writer.append(
            [_priced(key, build, node_id, window_start, window_end, rows)], key=key
        )
    event = appended.events[0].event
    if not isinstance(event, WorkCredited) or event.node_id != node_id:
        raise KeyReused(f"key {key!r} belongs to another event: position {appended.position}")
    amount = sum(line.amount_microcredits for line in event.work)
    return CreditResult(appended.position, amount, appended.repeated)


def _check_window(start: datetime, end: datetime) -> None:
    if start.tzinfo is None or end.tzinfo is None:
        raise BadRequest("a window needs times with a time zone")
    if not 0 < (end - start).total_seconds() <= WINDOW_LIMIT_SECONDS:
        raise BadRequest("a window must end after it starts, within a day")


def _merged(rows_by_layer: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Rows per layer, ascending, without layers that had none."""
    total: dict[int, int] = {}
    for layer, rows in rows_by_layer:
        if not 0 <= rows <= ROWS_LIMIT:
            raise BadRequest(f"layer {layer}: {rows} is no possible number of rows")
        total[layer] = total.get(layer, 0) + rows
    merged = {layer: rows for layer, rows in sorted(total.items()) if rows}
    if not merged:
        raise BadRequest("a credit needs at least one row")
    return merged


def _priced(
    key: str, build: str, node_id: str, window_start: datetime, window_end: datetime, rows: Mapping[int, int]
) -> WorkCredited:
    description = queries.build(build)
    if queries.node(node_id) is None:
        raise UnknownNode(f"no node {node_id!r} has registered")
    if outside := set(rows) - set(description.layers):
        raise RangeOutside(f"layers {sorted(outside)} are not on offer in build {build}")
    covering = _claims_during(build, node_id, window_start, window_end)
    hour = hour_of(window_end)
    work = [
        line
        for layer, count in rows.items()
        for line in _layer_lines(description, layer, count, covering.get(layer, []), hour)
    ]
    postings = credit_postings(node_id, sum(line.amount_microcredits for line in work))
    check_balanced(postings)
    return WorkCredited(key, build, node_id, window_start, window_end, tuple(work), postings)


def _claims_during(build: str, node_id: str, start: datetime, end: datetime) -> dict[int, list[Claim]]:
    """The node's claims that were open at any time in the window, by layer, oldest first."""
    claims = Claim.objects.filter(
        Q(ended_at__isnull=True) | Q(ended_at__gt=start), build=build, node_id=node_id, granted_at__lt=end
    )
    by_layer: dict[int, list[Claim]] = {}
    for claim in claims.order_by("claim_id"):
        by_layer.setdefault(claim.layer, []).append(claim)
    return by_layer


def _layer_lines(
    build: BuildDescription, layer: int, rows: int, claims: Sequence[Claim], hour: datetime
) -> list[WorkLine]:
    if not claims:
        return [WorkLine(layer, rows, None, 0)]
    total_length = sum(claim.last - claim.first for claim in claims)
    shares = [rows * (claim.last - claim.first) // total_length for claim in claims]
    # Whole rows only: what rounding down left over goes to the oldest claim.
    shares[0] += rows - sum(shares)
    return [
        WorkLine(layer, share, claim.claim_id, _amount(build, claim, share, hour))
        for claim, share in zip(claims, shares, strict=True)
        if share
    ]


def _amount(build: BuildDescription, claim: Claim, rows: int, hour: datetime) -> int:
    price = work_price(rows, build.flops_per_row, claim.rate_microcredits_per_teraflop)
    earned = claim.hour_microcredits if claim.hour == hour else 0
    allowed = allowance(claim.cap_microcredits_per_hour, claim.first_hour_microcredits, claim.granted_at, hour)
    return min(price, max(0, allowed - earned))
