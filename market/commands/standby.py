"""Stand-by pay: a verified replica earns a little for being there, so that somebody holds what few ask for.

Proof of possession is the replica's being live: its digest and a challenge were right, and no later check failed. Paid
per full clock window of STANDBY_SECONDS, as a WorkCredited event whose lines have no rows, within the claim's cap.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import groupby

from django.db.models import QuerySet

from market import presence, queries, store
from market import rows as r
from market.events import WorkCredited, WorkLine
from market.hours import SECONDS_PER_HOUR, allowance, hour_of, start_of_hour
from market.ledger import credit_postings
from market.models import Claim

STANDBY_SECONDS = 600


def window_before(now: datetime) -> tuple[datetime, datetime]:
    """The last full clock window that has ended."""
    hour = start_of_hour(now)
    end = hour + timedelta(seconds=int((now - hour).total_seconds()) // STANDBY_SECONDS * STANDBY_SECONDS)
    return end - timedelta(seconds=STANDBY_SECONDS), end


def credit_standby(now: datetime) -> int:
    """Pays the last full window, once; the microcredits paid now. Nodes that are silent or quarantined get nothing."""
    start, end = window_before(now)
    key = f"standby/{end.isoformat()}"
    percent = queries.policy().standby_percent
    if percent == 0 or store.find(key) is not None or not _live(start).exists():
        return 0
    with store.writing() as writer:
        if store.find(key) is not None:
            return 0
        events = list(_credits(start, end, percent, now))
        for first in range(0, len(events), store.APPEND_LIMIT):
            writer.append(events[first : first + store.APPEND_LIMIT], key=key if first == 0 else None)
    return sum(line.amount_microcredits for event in events for line in event.work)


def _live(start: datetime) -> QuerySet[Claim]:
    """Replicas that were verified before the window began and are live."""
    claims = Claim.objects.filter(state=r.LIVE, verified_at__lte=start).exclude(node_id__in=presence.silent_nodes())
    return claims.order_by("build", "node_id", "claim_id")


def _credits(start: datetime, end: datetime, percent: int, now: datetime) -> Iterator[WorkCredited]:
    hour = hour_of(end)
    for (build, node_id), claims in groupby(_live(start), key=lambda claim: (claim.build, claim.node_id)):
        node = queries.node(node_id)
        if node is None or node.quarantined:
            continue
        lines = [WorkLine(claim.layer, 0, claim.claim_id, _amount(claim, percent, hour)) for claim in claims]
        work = tuple(line for line in lines if line.amount_microcredits)
        if work:
            postings = credit_postings(node_id, sum(line.amount_microcredits for line in work))
            key = f"standby/{end.isoformat()}/{build}/{node_id}"
            yield WorkCredited(key, build, node_id, start, end, work, True, postings, now)


def _amount(claim: Claim, percent: int, hour: datetime) -> int:
    """The window's part of `percent` of the cap, as far as the cap allows."""
    full = claim.cap_microcredits_per_hour * percent * STANDBY_SECONDS // (100 * SECONDS_PER_HOUR)
    allowed = allowance(claim.cap_microcredits_per_hour, claim.first_hour_microcredits, claim.granted_at, hour)
    earned = claim.hour_microcredits if claim.hour == hour else 0
    return min(full, max(0, allowed - earned))
