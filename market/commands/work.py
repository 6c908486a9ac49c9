"""What a backbone reports: demand that its router saw, and work that it used."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from django.db.models import Q
from django.utils import timezone
from numpy.typing import NDArray

from market import queries, store
from market import strain as strain_notes
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


def note_strain(build: str, backbone: str, strain: NDArray[np.float64], *, now: datetime | None = None) -> None:
    """How badly workers serve each expert, by one backbone: see `market.strain`. No event, no check of the build: what
    fits no build on offer is never looked at."""
    strain_notes.note(build, backbone, strain, now or timezone.now())


def credit_work(
    key: str,
    build: str,
    node_id: str,
    window_start: datetime,
    window_end: datetime,
    rows_by_claim: Iterable[tuple[int, int, int]],
    *,
    now: datetime | None = None,
) -> CreditResult:
    """Pays a node for rows that a backbone used during a window; the same key is never paid twice.

    rows_by_claim: (claim, layer, rows). A row costs its known FLOPs at the rate of the claim that computed it, also
    when that claim has ended since; a claim earns no more per clock hour than its cap. Rows of a claim that is not the
    node's, or was not open during the window, and rows of a quarantined node are booked and paid with zero, so that
    credited rows always equal used rows. Raises BadRequest, UnknownBuild, UnknownNode, RangeOutside, KeyReused.
    """
    if not 0 < len(key) <= KEY_LIMIT:
        raise BadRequest(f"a key has 1 to {KEY_LIMIT} characters")
    _check_window(window_start, window_end)
    rows = _merged(rows_by_claim)
    with store.writing() as writer:
        appended = store.find(key) or writer.append(
            [_priced(key, build, node_id, window_start, window_end, rows, now or timezone.now())], key=key
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


def _merged(rows_by_claim: Iterable[tuple[int, int, int]]) -> dict[tuple[int, int], int]:
    """Rows per (layer, claim), ascending, without those that had none."""
    total: dict[tuple[int, int], int] = {}
    for claim_id, layer, rows in rows_by_claim:
        if not 0 <= rows <= ROWS_LIMIT:
            raise BadRequest(f"layer {layer}: {rows} is no possible number of rows")
        total[layer, claim_id] = total.get((layer, claim_id), 0) + rows
    merged = {place: rows for place, rows in sorted(total.items()) if rows}
    if not merged:
        raise BadRequest("a credit needs at least one row")
    return merged


def _priced(
    key: str,
    build: str,
    node_id: str,
    window_start: datetime,
    window_end: datetime,
    rows: Mapping[tuple[int, int], int],
    now: datetime,
) -> WorkCredited:
    description = queries.build(build)
    node = queries.node(node_id)
    if node is None:
        raise UnknownNode(f"no node {node_id!r} has registered")
    if outside := {layer for layer, _ in rows} - set(description.layers):
        raise RangeOutside(f"layers {sorted(outside)} are not on offer in build {build}")
    claims = _claims_during(build, node_id, window_start, window_end)
    hour = hour_of(window_end)
    work = []
    for (layer, claim_id), count in rows.items():
        claim = claims.get((layer, claim_id))
        amount = 0 if claim is None or node.quarantined else _amount(description, claim, count, hour)
        work.append(WorkLine(layer, count, None if claim is None else claim_id, amount))
    postings = credit_postings(node_id, sum(line.amount_microcredits for line in work))
    check_balanced(postings)
    return WorkCredited(key, build, node_id, window_start, window_end, tuple(work), True, postings, now)


def _claims_during(build: str, node_id: str, start: datetime, end: datetime) -> dict[tuple[int, int], Claim]:
    """The node's claims that were open at any time in the window, by layer and id."""
    claims = Claim.objects.filter(
        Q(ended_at__isnull=True) | Q(ended_at__gt=start), build=build, node_id=node_id, granted_at__lt=end
    )
    return {(claim.layer, claim.claim_id): claim for claim in claims}


def _amount(build: BuildDescription, claim: Claim, rows: int, hour: datetime) -> int:
    price = work_price(rows, build.flops_per_row, claim.rate_microcredits_per_teraflop)
    earned = claim.hour_microcredits if claim.hour == hour else 0
    allowed = allowance(claim.cap_microcredits_per_hour, claim.first_hour_microcredits, claim.granted_at, hour)
    return min(price, max(0, allowed - earned))
