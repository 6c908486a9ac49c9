"""Money events into the tables: postings, balances, holds, payouts. `market.ledger_fold` says the same without them."""

from collections.abc import Iterable
from datetime import datetime
from typing import assert_never

from django.db.models import F

from market import events as e
from market import rows as r
from market.errors import BrokenHistory
from market.ledger import HeldPart, check_balanced, is_node_account
from market.ledger import Posting as Line
from market.ledger_fold import drafted, forfeited
from market.ledger_models import Forfeit, Hold, PayoutBatch, PayoutItem
from market.models import Balance, Posting

INSERT_BATCH = 500


def post(position: int, postings: Iterable[Line]) -> None:
    """Books one entry; a balance that would become negative is refused by the database."""
    lines = tuple(postings)
    check_balanced(lines)
    Posting.objects.bulk_create(
        (
            Posting(
                event_position=position, line=number, account=line.account, amount_microcredits=line.amount_microcredits
            )
            for number, line in enumerate(lines)
        ),
        batch_size=INSERT_BATCH,
    )
    for line in lines:
        if is_node_account(line.account):
            _add_to_balance(line.account, line.amount_microcredits)


def _add_to_balance(account: str, amount_microcredits: int) -> None:
    changed = Balance.objects.filter(account=account).update(
        balance_microcredits=F("balance_microcredits") + amount_microcredits
    )
    if not changed:
        Balance.objects.create(account=account, balance_microcredits=amount_microcredits)


def hold(node_id: str, earned_until: datetime, *, held: int = 0, released: int = 0, forfeited: int = 0) -> None:
    """Changes what is held, released and forfeited of the rewards of ten minutes, in microcredits."""
    changed = Hold.objects.filter(node_id=node_id, earned_until=earned_until).update(
        held_microcredits=F("held_microcredits") + held,
        released_microcredits=F("released_microcredits") + released,
        forfeited_microcredits=F("forfeited_microcredits") + forfeited,
    )
    if not changed:
        Hold.objects.create(
            node_id=node_id,
            earned_until=earned_until,
            held_microcredits=held,
            released_microcredits=released,
            forfeited_microcredits=forfeited,
        )


def project_earnings(event: e.EarningsFact, position: int) -> None:
    post(position, event.postings)
    match event:
        case e.EarningsReleased():
            for until, amount in _amounts(event.parts):
                hold(event.node_id, until, held=-amount, released=amount)
        case e.EarningsForfeited():
            for until, amount in _amounts(event.parts):
                hold(event.node_id, until, held=-amount, forfeited=amount)
            row = forfeited(event, position)
            Forfeit.objects.create(**{name: getattr(row, name) for name in r.ForfeitRow.__slots__})
        case e.EarningsRestored():
            for until, amount in _amounts(event.parts):
                hold(event.node_id, until, held=amount, forfeited=-amount)
            open_forfeit = Forfeit.objects.filter(position=event.forfeited_position, restored_at__isnull=True)
            if not open_forfeit.update(restored_at=event.at):
                raise BrokenHistory(f"no forfeit at {event.forfeited_position} is left to restore")
        case e.BalanceAdjusted():
            pass
        case _ as never:
            assert_never(never)


def _amounts(parts: Iterable[HeldPart]) -> list[tuple[datetime, int]]:
    return [(part.earned_until, part.amount_microcredits) for part in parts]


def project_payout(event: e.PayoutFact, position: int) -> None:
    match event:
        case e.PayoutDrafted():
            _draft(event, position)
        case e.PayoutApproved():
            _move(event.batch_id, [r.DRAFTED], state=r.APPROVED, approved_by=event.by, approved_at=event.at)
        case e.PayoutCancelled():
            post(position, event.postings)
            _move(event.batch_id, list(r.CANCELLABLE_STATES), state=r.CANCELLED, ended_at=event.at, open_items=0)
            PayoutItem.objects.filter(batch_id=event.batch_id).update(state=r.CANCELLED, changed_at=event.at)
        case e.PayoutSending():
            _move(event.batch_id, [r.APPROVED], state=r.SENDING, provider=event.provider)
        case e.PayoutSent():
            _move(event.batch_id, [r.SENDING], state=r.SENT, reference=event.reference, sent_at=event.at)
        case e.PayoutItemSettled():
            post(position, event.postings)
            _move_item(event.item_id, r.RESERVED, state=r.SETTLED, reference=event.reference, changed_at=event.at)
            _close_with_last_item(event.batch_id, event.at)
        case e.PayoutItemFailed():
            post(position, event.postings)
            _move_item(event.item_id, r.RESERVED, state=r.FAILED, reason=event.reason, changed_at=event.at)
            _close_with_last_item(event.batch_id, event.at)
        case e.PayoutItemReturned():
            post(position, event.postings)
            _move_item(event.item_id, r.SETTLED, state=r.RETURNED, reason=event.reason, changed_at=event.at)
        case _ as never:
            assert_never(never)


def _draft(event: e.PayoutDrafted, position: int) -> None:
    batch, items = drafted(event)
    post(position, event.postings)
    PayoutBatch.objects.create(**{name: getattr(batch, name) for name in r.PayoutBatchRow.__slots__})
    PayoutItem.objects.bulk_create(
        (PayoutItem(**{name: getattr(item, name) for name in r.PayoutItemRow.__slots__}) for item in items),
        batch_size=INSERT_BATCH,
    )


def _move(batch_id: int, allowed: list[str], **changes: str | int | datetime) -> None:
    if not PayoutBatch.objects.filter(batch_id=batch_id, state__in=allowed).update(**changes):
        raise BrokenHistory(f"batch {batch_id} is unknown or not {' or '.join(allowed)}")


def _move_item(item_id: str, allowed: str, **changes: str | datetime) -> None:
    if not PayoutItem.objects.filter(item_id=item_id, state=allowed).update(**changes):
        raise BrokenHistory(f"payout item {item_id} is unknown or not {allowed}")


def _close_with_last_item(batch_id: int, at: datetime) -> None:
    batch = PayoutBatch.objects.get(batch_id=batch_id)
    if batch.state != r.SENT:
        raise BrokenHistory(f"batch {batch_id} is not {r.SENT}")
    batch.open_items -= 1
    if batch.open_items == 0:
        batch.state, batch.ended_at = r.CLOSED, at
    batch.save(update_fields=["open_items", "state", "ended_at"])
