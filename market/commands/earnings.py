"""Money between being earned and being paid out: holds end, are voided, and mistakes are compensated."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import QuerySet
from django.utils import timezone

from market import queries, store
from market.commands.incidents import refuse_during_incident, restored
from market.commands.nodes import checked_reason, known_node, short
from market.errors import BadRequest, NotAvailable
from market.events import BalanceAdjusted, EarningsForfeited, EarningsReleased, Event
from market.ledger import ADJUSTMENTS, AVAILABLE, FORFEITED, PENDING, HeldPart, node_account, transfer
from market.models import Forfeit, Hold, Node

ADJUSTMENT_LIMIT = 1 << 53
KEY_LIMIT = 80
# One append releases so many nodes at most; the rest has its turn at the next tick.
RELEASE_NODES = 200


def release_earnings(now: datetime) -> dict[str, int]:
    """Rewards whose audit window has passed become available: microcredits by node. Suspended nodes keep theirs held.

    Running it twice, or in two processes at once, is harmless: what is released is read under the append lock.
    """
    due = now - timedelta(seconds=settings.HOLD_SECONDS)
    if not _due_holds(due).exists():
        return {}
    with store.writing() as writer:
        parts_of: dict[str, list[HeldPart]] = defaultdict(list)
        for held in _due_holds(due).order_by("earned_until", "node_id"):
            if held.node_id in parts_of or len(parts_of) < RELEASE_NODES:
                parts_of[held.node_id].append(HeldPart(held.earned_until, held.held_microcredits))
        released: list[Event] = [_released(node_id, parts, now) for node_id, parts in sorted(parts_of.items())]
        if released:
            writer.append(released)
    return {node_id: _total(parts) for node_id, parts in parts_of.items()}


def _due_holds(due: datetime) -> QuerySet[Hold]:
    suspended = Node.objects.exclude(suspended_reason="").values("node_id")
    return Hold.objects.filter(earned_until__lte=due, held_microcredits__gt=0).exclude(node_id__in=suspended)


def _released(node_id: str, parts: list[HeldPart], at: datetime) -> EarningsReleased:
    postings = transfer(node_account(node_id, PENDING), node_account(node_id, AVAILABLE), _total(parts))
    return EarningsReleased(node_id, tuple(parts), postings, at)


def _total(parts: Iterable[HeldPart]) -> int:
    return sum(part.amount_microcredits for part in parts)


def forfeit_pending(node_id: str, *, reason: str, by: str, now: datetime | None = None) -> int:
    """Voids everything that the node still has on hold; the amount. Raises UnknownNode, BadRequest, IncidentInForce."""
    moment, who, why = now or timezone.now(), short(by), checked_reason(reason)
    with store.writing() as writer:
        known_node(node_id)
        refuse_during_incident(moment)
        forfeits = forfeit_events(node_id, by=who, reason=why, at=moment)
        if forfeits:
            writer.append(forfeits)
    return sum(_total(event.parts) for event in forfeits)


def forfeit_events(node_id: str, *, by: str, reason: str, at: datetime) -> list[EarningsForfeited]:
    """What voids the node's held rewards: one event, or none when nothing is held."""
    held = Hold.objects.filter(node_id=node_id, held_microcredits__gt=0).order_by("earned_until")
    parts = tuple(HeldPart(row.earned_until, row.held_microcredits) for row in held)
    if not parts:
        return []
    postings = transfer(node_account(node_id, PENDING), FORFEITED, _total(parts))
    return [EarningsForfeited(node_id, parts, by, reason, postings, at)]


def restore_earnings(forfeited_position: int, *, reason: str, by: str, now: datetime | None = None) -> int:
    """Takes back the forfeit at this position: its rewards are held again; the amount. Zero when it was taken back.

    Raises BadRequest.
    """
    who, why = short(by), checked_reason(reason)
    with store.writing() as writer:
        forfeit = Forfeit.objects.filter(position=forfeited_position).first()
        if forfeit is None:
            raise BadRequest(f"nothing was forfeited at position {forfeited_position}")
        if forfeit.restored_at is not None:
            return 0
        writer.append([restored(forfeit, by=who, reason=why, at=now or timezone.now())])
    return forfeit.amount_microcredits


def adjust_balance(
    node_id: str, amount_microcredits: int, *, by: str, reason: str, key: str, now: datetime | None = None
) -> int:
    """Compensates a mistake: plus gives to what is available, minus takes; the position of the event.

    The same key adjusts once. Raises UnknownNode, BadRequest, and NotAvailable where less is there than would be taken.
    """
    if amount_microcredits == 0 or abs(amount_microcredits) > ADJUSTMENT_LIMIT:
        raise BadRequest(f"an adjustment moves between 1 and {ADJUSTMENT_LIMIT} microcredits")
    if not 0 < len(key) <= KEY_LIMIT:
        raise BadRequest(f"a key has 1 to {KEY_LIMIT} characters")
    who, why = short(by), checked_reason(reason)
    account = node_account(node_id, AVAILABLE)
    with store.writing() as writer:
        known_node(node_id)
        full_key = f"adjust/{key}"
        if (first := store.find(full_key)) is not None:
            return first.position
        available = queries.balances(node_id).get(AVAILABLE, 0)
        if available + amount_microcredits < 0:
            raise NotAvailable(f"node {node_id} has {available} microcredits available, not {-amount_microcredits}")
        postings = transfer(ADJUSTMENTS, account, amount_microcredits)
        event = BalanceAdjusted(node_id, amount_microcredits, who, why, postings, now or timezone.now())
        return writer.append([event], key=full_key).position
