"""The part of the fold that moves money: postings, holds, payouts. Pure; see `market.fold`.

`market.ledger_projections` says the same to the tables.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import assert_never

from market import events as e
from market import rows as r
from market.errors import BrokenHistory
from market.ledger import HeldPart, Posting, check_balanced, is_node_account
from market.state import State


def post(state: State, postings: Iterable[Posting]) -> None:
    """Books one entry at the state's position; raises Unbalanced, and BrokenHistory for money that is not there."""
    check_balanced(postings)
    for line, posting in enumerate(postings):
        state.postings.append(r.PostingRow(state.position, line, posting.account, posting.amount_microcredits))
        if not is_node_account(posting.account):
            continue
        balance = state.balances.setdefault(posting.account, r.BalanceRow(posting.account, 0))
        balance.balance_microcredits += posting.amount_microcredits
        if balance.balance_microcredits < 0:
            raise BrokenHistory(f"position {state.position}: {posting.account} gives more than it has")


def hold(
    state: State,
    node_id: str,
    earned_until: datetime,
    *,
    held_microcredits: int = 0,
    released_microcredits: int = 0,
    forfeited_microcredits: int = 0,
) -> None:
    """Changes what is held, released and forfeited of the rewards of ten minutes."""
    key = (node_id, earned_until)
    row = state.holds.get(key)
    if row is None:
        row = state.holds[key] = r.HoldRow(node_id, earned_until, 0, 0, 0)
    row.held_microcredits += held_microcredits
    row.released_microcredits += released_microcredits
    row.forfeited_microcredits += forfeited_microcredits
    if min(row.held_microcredits, row.released_microcredits, row.forfeited_microcredits) < 0:
        raise BrokenHistory(f"position {state.position}: node {node_id} does not hold so much")


def apply_earnings(state: State, event: e.EarningsFact) -> None:
    state.node(event.node_id)
    post(state, event.postings)
    match event:
        case e.EarningsReleased():
            for part, amount in _amounts(event.parts):
                hold(state, event.node_id, part, held_microcredits=-amount, released_microcredits=amount)
        case e.EarningsForfeited():
            for part, amount in _amounts(event.parts):
                hold(state, event.node_id, part, held_microcredits=-amount, forfeited_microcredits=amount)
            state.forfeits[state.position] = forfeited(event, state.position)
        case e.EarningsRestored():
            for part, amount in _amounts(event.parts):
                hold(state, event.node_id, part, held_microcredits=amount, forfeited_microcredits=-amount)
            _restore(state, event)
        case e.BalanceAdjusted():
            pass
        case _ as never:
            assert_never(never)


def _amounts(parts: Iterable[HeldPart]) -> list[tuple[datetime, int]]:
    return [(part.earned_until, part.amount_microcredits) for part in parts]


def forfeited(event: e.EarningsForfeited, position: int) -> r.ForfeitRow:
    """The row of a forfeit; the projection writes the same."""
    amount = sum(part.amount_microcredits for part in event.parts)
    return r.ForfeitRow(position, event.node_id, amount, event.by, event.reason, event.at, None)


def _restore(state: State, event: e.EarningsRestored) -> None:
    row = state.forfeits.get(event.forfeited_position)
    if row is None or row.restored_at is not None:
        raise BrokenHistory(f"position {state.position}: no forfeit at {event.forfeited_position} is left to restore")
    row.restored_at = event.at


def apply_payout(state: State, event: e.PayoutFact) -> None:
    match event:
        case e.PayoutDrafted():
            _draft(state, event)
        case e.PayoutApproved():
            batch = _batch(state, event.batch_id, r.DRAFTED)
            batch.state, batch.approved_by, batch.approved_at = r.APPROVED, event.by, event.at
        case e.PayoutCancelled():
            _cancel(state, event)
        case e.PayoutSending():
            batch = _batch(state, event.batch_id, r.APPROVED)
            batch.state, batch.provider = r.SENDING, event.provider
        case e.PayoutSent():
            batch = _batch(state, event.batch_id, r.SENDING)
            batch.state, batch.reference, batch.sent_at = r.SENT, event.reference, event.at
        case e.PayoutItemSettled():
            _end_item(state, event, r.SETTLED, reference=event.reference)
        case e.PayoutItemFailed():
            _end_item(state, event, r.FAILED, reason=event.reason)
        case e.PayoutItemReturned():
            post(state, event.postings)
            item = _item(state, event.item_id, r.SETTLED)
            item.state, item.reason, item.changed_at = r.RETURNED, event.reason, event.at
        case _ as never:
            assert_never(never)


def drafted(event: e.PayoutDrafted) -> tuple[r.PayoutBatchRow, list[r.PayoutItemRow]]:
    """The rows of a new batch and its items; the projection writes the same."""
    batch = r.PayoutBatchRow(
        batch_id=event.batch_id,
        state=r.DRAFTED,
        items=len(event.items),
        open_items=len(event.items),
        total_microcredits=sum(item.amount_microcredits for item in event.items),
        minimum_microcredits=event.minimum_microcredits,
        cutoff=event.cutoff,
        reserve_percent=event.reserve_percent,
        drafted_by=event.by,
        reason=event.reason,
        drafted_at=event.at,
        approved_by="",
        approved_at=None,
        provider="",
        reference="",
        sent_at=None,
        ended_at=None,
    )
    items = [
        r.PayoutItemRow(
            item.item_id, event.batch_id, item.node_id, item.amount_microcredits, r.RESERVED, "", "", event.at
        )
        for item in event.items
    ]
    return batch, items


def _draft(state: State, event: e.PayoutDrafted) -> None:
    batch, items = drafted(event)
    known = [item.item_id for item in items if item.item_id in state.items]
    if batch.batch_id in state.batches or known or len({item.item_id for item in items}) != len(items):
        raise BrokenHistory(f"position {state.position}: batch {batch.batch_id} or one of its items was drafted twice")
    post(state, event.postings)
    state.batches[batch.batch_id] = batch
    state.items.update((item.item_id, item) for item in items)


def _cancel(state: State, event: e.PayoutCancelled) -> None:
    batch = _batch(state, event.batch_id, *r.CANCELLABLE_STATES)
    post(state, event.postings)
    batch.state, batch.ended_at, batch.open_items = r.CANCELLED, event.at, 0
    for item in state.items.values():
        if item.batch_id == event.batch_id:
            item.state, item.changed_at = r.CANCELLED, event.at


def _batch(state: State, batch_id: int, *allowed: str) -> r.PayoutBatchRow:
    batch = state.batches.get(batch_id)
    if batch is None or batch.state not in allowed:
        raise BrokenHistory(f"position {state.position}: batch {batch_id} is unknown or not {' or '.join(allowed)}")
    return batch


def _item(state: State, item_id: str, allowed: str) -> r.PayoutItemRow:
    item = state.items.get(item_id)
    if item is None or item.state != allowed:
        raise BrokenHistory(f"position {state.position}: payout item {item_id} is unknown or not {allowed}")
    return item


def _end_item(
    state: State,
    event: e.PayoutItemSettled | e.PayoutItemFailed,
    ended_as: str,
    *,
    reference: str = "",
    reason: str = "",
) -> None:
    """Ends one item, and with the last one its batch."""
    post(state, event.postings)
    batch = _batch(state, event.batch_id, r.SENT)
    item = _item(state, event.item_id, r.RESERVED)
    item.state, item.reference, item.reason, item.changed_at = ended_as, reference, reason, event.at
    batch.open_items -= 1
    if batch.open_items == 0:
        batch.state, batch.ended_at = r.CLOSED, event.at
