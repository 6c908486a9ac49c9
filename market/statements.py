"""What a node earned and was paid, line by line: every posting of its accounts, with the event that made it."""

import csv
import io
from dataclasses import dataclass
from datetime import datetime

from market import codec
from market import events as e
from market.errors import BadRequest
from market.ledger import node_accounts
from market.models import Event as EventRow
from market.models import Posting
from market.payout_providers import credits_text, safe_cell

LINE_LIMIT = 50_000
COLUMNS = ("time", "position", "event", "account", "amount_credits", "detail")
CHUNK = 500


@dataclass(frozen=True)
class StatementLine:
    """One posting. account: without the node's id; position: of the event, the same for both ends of a transfer."""

    time: datetime
    position: int
    event: str
    account: str
    amount_microcredits: int
    detail: str


def statement(node_id: str, since: datetime | None = None, until: datetime | None = None) -> list[StatementLine]:
    """All lines of a node recorded in [since, until), oldest first. Raises BadRequest for more than LINE_LIMIT."""
    if any(bound is not None and bound.tzinfo is None for bound in (since, until)):
        raise BadRequest("since and until need a time zone, for example 2026-11-01T00:00:00Z")
    postings = Posting.objects.filter(account__in=node_accounts(node_id))
    if since is not None:
        postings = postings.filter(event_position__gte=_first_position(since))
    if until is not None:
        postings = postings.filter(event_position__lt=_first_position(until))
    rows = list(postings.order_by("event_position", "line")[: LINE_LIMIT + 1])
    if len(rows) > LINE_LIMIT:
        raise BadRequest(f"a statement has at most {LINE_LIMIT} lines: ask for a shorter time with since and until")
    lines = []
    for start in range(0, len(rows), CHUNK):
        chunk = rows[start : start + CHUNK]
        events = EventRow.objects.in_bulk({row.event_position for row in chunk})
        lines += [_line(row, events[row.event_position]) for row in chunk]
    return lines


def _first_position(moment: datetime) -> int:
    """The position of the first event recorded at this time or later; one after the last when there is none.

    Positions are handed out in the order of recording, so half of what is left is ruled out with each look.
    """
    low, high = 1, (EventRow.objects.order_by("-position").values_list("position", flat=True).first() or 0) + 1
    while low < high:
        middle = (low + high) // 2
        recorded_at = EventRow.objects.values_list("recorded_at", flat=True).get(position=middle)
        low, high = (low, middle) if recorded_at >= moment else (middle + 1, high)
    return low


def _line(row: Posting, stored: EventRow) -> StatementLine:
    event = codec.decode(stored.name, stored.schema_version, stored.body)
    kind = row.account.rpartition("/")[2]
    return StatementLine(
        stored.recorded_at, row.event_position, stored.name, kind, row.amount_microcredits, detail_of(event)
    )


def detail_of(event: e.Event) -> str:
    """What a line is about, for the owner."""
    match event:
        case e.WorkCredited():
            claims = ", ".join(str(line.claim_id) for line in event.work if line.claim_id is not None)
            rows = sum(line.rows for line in event.work)
            return f"{rows} rows until {event.window_end.isoformat()}, claims {claims or 'none'}"
        case e.EarningsForfeited() | e.EarningsRestored() | e.BalanceAdjusted() | e.PayoutCancelled():
            return event.reason
        case e.PayoutItemSettled():
            return f"{event.item_id} {event.reference}".strip()
        case e.PayoutItemFailed() | e.PayoutItemReturned():
            return f"{event.item_id}: {event.reason}"
        case e.PayoutDrafted():
            return f"payout {event.batch_id}"
        case _:
            return ""


def statement_csv(lines: list[StatementLine]) -> str:
    """The lines as CSV with a line of names; no cell is a formula."""
    output = io.StringIO()
    writer = csv.writer(output)
    writer.writerow(COLUMNS)
    for line in lines:
        amount, detail = credits_text(line.amount_microcredits), safe_cell(line.detail)
        writer.writerow((line.time.isoformat(), line.position, line.event, line.account, amount, detail))
    return output.getvalue()
