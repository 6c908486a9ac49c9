"""Payouts: drafted, approved by a second person, sent, settled or failed item by item.

Every step is one transaction that starts from what the books say, so it can be repeated after a crash: a step that was
done answers as the first time and moves nothing. Money is in transit from the draft on; no two batches can hold it.
"""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime

from django.db.models import Max, Sum
from django.utils import timezone

from market import rows as r
from market import store
from market.commands.nodes import checked_reason, one_line, short
from market.errors import BadRequest, KeyReused, NothingToPay, SamePerson, UnknownPayout, WrongState
from market.events import (
    PayoutApproved,
    PayoutCancelled,
    PayoutDrafted,
    PayoutItem,
    PayoutItemFailed,
    PayoutItemReturned,
    PayoutItemSettled,
    PayoutSending,
    PayoutSent,
    Posting,
)
from market.ledger import AVAILABLE, IN_TRANSIT, PAID, node_account, transfer
from market.models import Balance, Hold, Node, OwnerProfile, PayoutBatch
from market.models import PayoutItem as ItemRow
from market.payout_providers import Payment, PayoutProvider

ITEM_LIMIT = 1000
KEY_LIMIT = 80


def draft_payout(
    *,
    key: str,
    by: str,
    reason: str,
    minimum_microcredits: int,
    reserve_percent: int,
    cutoff: datetime | None = None,
    now: datetime | None = None,
) -> int:
    """Puts everybody who has enough available on a batch of at most ITEM_LIMIT items; its id. The same key drafts once.

    An account is paid for all its devices together, when they have at least the minimum; rewards on hold, rewards that
    were credited after the cut-off, suspended devices and accounts without a payee stay out, and reserve_percent of
    each amount is left for reversals. Raises BadRequest, NothingToPay, KeyReused.
    """
    moment, who, why = now or timezone.now(), short(by), checked_reason(reason)
    if not 0 < len(key) <= KEY_LIMIT:
        raise BadRequest(f"a key has 1 to {KEY_LIMIT} characters")
    if minimum_microcredits < 1 or not 0 <= reserve_percent < 100:
        raise BadRequest("the minimum must be positive, the reserve between 0 and 99 percent")
    until = cutoff or moment
    with store.writing() as writer:
        if (first := store.find(f"payout/{key}")) is not None:
            event = first.events[0].event
            if not isinstance(event, PayoutDrafted):
                raise KeyReused(f"key {key!r} belongs to another event: position {first.position}")
            return event.batch_id
        amounts = payable(until, minimum_microcredits, reserve_percent)
        if not amounts:
            raise NothingToPay("nobody with a payee has so much available; see `manage.py ledger`")
        batch_id = (PayoutBatch.objects.aggregate(last=Max("batch_id"))["last"] or 0) + 1
        items = tuple(
            PayoutItem(f"{batch_key(batch_id)}-{number:04d}", node_id, amount)
            for number, (node_id, amount) in enumerate(sorted(amounts.items()), start=1)
        )
        postings = _moved(((item.node_id, item.amount_microcredits) for item in items), AVAILABLE, IN_TRANSIT)
        drafted = PayoutDrafted(
            batch_id, items, minimum_microcredits, until, reserve_percent, who, why, postings, moment
        )
        writer.append([drafted], key=f"payout/{key}")
    return batch_id


def batch_key(batch_id: int) -> str:
    """The provider's name for a batch: the same at every attempt."""
    return f"payout-{batch_id:06d}"


def payable(cutoff: datetime, minimum_microcredits: int, reserve_percent: int) -> dict[str, int]:
    """Microcredits by node that a batch would pay now: whole accounts by their ids, ITEM_LIMIT nodes at most."""
    payees = set(OwnerProfile.objects.exclude(payee="").values_list("owner_id", flat=True))
    nodes = Node.objects.filter(suspended_reason="", erased_at__isnull=True).exclude(owner_id="")
    too_late = dict(
        Hold.objects.filter(earned_until__gt=cutoff, released_microcredits__gt=0)
        .values("node_id")
        .annotate(total=Sum("released_microcredits"))
        .values_list("node_id", "total")
    )
    rows = Balance.objects.filter(account__endswith=f"/{AVAILABLE}", balance_microcredits__gt=0)
    available = dict(rows.values_list("account", "balance_microcredits"))
    by_owner: dict[str, dict[str, int]] = defaultdict(dict)
    for node_id, owner_id in nodes.order_by("owner_id", "node_id").values_list("node_id", "owner_id"):
        whole = available.get(node_account(node_id, AVAILABLE), 0) - too_late.get(node_id, 0)
        amount = whole * (100 - reserve_percent) // 100
        if owner_id in payees and amount > 0:
            by_owner[owner_id][node_id] = amount
    chosen: dict[str, int] = {}
    for amounts in by_owner.values():
        if sum(amounts.values()) >= minimum_microcredits and len(chosen) + len(amounts) <= ITEM_LIMIT:
            chosen.update(amounts)
    return chosen


def approve_payout(batch_id: int, *, by: str, reason: str, now: datetime | None = None) -> bool:
    """A second person agrees; False when this person has agreed before.

    Raises UnknownPayout, WrongState, BadRequest, and SamePerson for whoever drafted the batch.
    """
    who, why = short(by), checked_reason(reason)
    with store.writing() as writer:
        batch = _batch(batch_id)
        if batch.state != r.DRAFTED and batch.approved_by == who:
            return False
        _expect(batch, r.DRAFTED)
        if batch.drafted_by.casefold() == who.casefold():
            raise SamePerson(f"batch {batch_id} was drafted by {who}: somebody else must approve it")
        _refuse_suspended(batch)
        writer.append([PayoutApproved(batch_id, who, why, now or timezone.now())])
    return True


def cancel_payout(batch_id: int, *, by: str, reason: str, now: datetime | None = None) -> bool:
    """Drops a batch that no provider has seen; its money is available again. False when it was cancelled before.

    Raises UnknownPayout, WrongState, BadRequest.
    """
    who, why = short(by), checked_reason(reason)
    with store.writing() as writer:
        batch = _batch(batch_id)
        if batch.state == r.CANCELLED:
            return False
        _expect(batch, *r.CANCELLABLE_STATES)
        items = ItemRow.objects.filter(batch_id=batch_id).values_list("node_id", "amount_microcredits")
        postings = _moved(items.order_by("item_id"), IN_TRANSIT, AVAILABLE)
        writer.append([PayoutCancelled(batch_id, who, why, postings, now or timezone.now())])
    return True


def send_payout(batch_id: int, provider: PayoutProvider, *, by: str, reason: str, now: datetime | None = None) -> str:
    """Hands an approved batch to the provider; its reference. May be repeated after any failure.

    The intent is on record before the provider is asked, so a batch that may have been sent cannot be cancelled. Raises
    UnknownPayout, WrongState, BadRequest, ProviderFailed.
    """
    who, why = short(by), checked_reason(reason)
    with store.writing() as writer:
        batch = _batch(batch_id)
        if batch.state in (r.SENT, r.CLOSED):
            return batch.reference
        if batch.state != r.SENDING:
            _expect(batch, r.APPROVED)
            _refuse_suspended(batch)
            writer.append([PayoutSending(batch_id, provider.name, who, why, now or timezone.now())])
        elif batch.provider != provider.name:
            raise WrongState(f"batch {batch_id} went to provider {batch.provider!r}; send it there again")
    reference = provider.submit(batch_key(batch_id), payments(batch_id))
    with store.writing() as writer:
        batch = _batch(batch_id)
        if batch.state == r.SENDING:
            writer.append([PayoutSent(batch_id, one_line(reference), now or timezone.now())])
            return reference
    return batch.reference


def payments(batch_id: int) -> list[Payment]:
    """The items of a batch with the payees of now, in order."""
    items = list(ItemRow.objects.filter(batch_id=batch_id).order_by("item_id"))
    owners = dict(Node.objects.filter(node_id__in=[item.node_id for item in items]).values_list("node_id", "owner_id"))
    payees = dict(OwnerProfile.objects.filter(owner_id__in=owners.values()).values_list("owner_id", "payee"))
    return [
        Payment(item.item_id, item.node_id, payees.get(owners.get(item.node_id, ""), ""), item.amount_microcredits)
        for item in items
    ]


def settle_item(item_id: str, *, reference: str, by: str, now: datetime | None = None) -> bool:
    """The provider paid; False when that was known. Raises UnknownPayout, WrongState, BadRequest."""
    with store.writing() as writer:
        item = _sent_item(item_id)
        if item.state == r.SETTLED:
            return False
        _expect_item(item, r.RESERVED)
        postings = _moved([(item.node_id, item.amount_microcredits)], IN_TRANSIT, PAID)
        settled = PayoutItemSettled(
            item.batch_id, item_id, one_line(reference), short(by), postings, now or timezone.now()
        )
        writer.append([settled])
    return True


def fail_item(item_id: str, *, reason: str, by: str, now: datetime | None = None) -> bool:
    """The provider did not pay, the money is available again; False when that was known.

    Raises UnknownPayout, WrongState, BadRequest.
    """
    why = checked_reason(reason)
    with store.writing() as writer:
        item = _sent_item(item_id)
        if item.state == r.FAILED:
            return False
        _expect_item(item, r.RESERVED)
        postings = _moved([(item.node_id, item.amount_microcredits)], IN_TRANSIT, AVAILABLE)
        writer.append([PayoutItemFailed(item.batch_id, item_id, why, short(by), postings, now or timezone.now())])
    return True


def return_item(item_id: str, *, reason: str, by: str, now: datetime | None = None) -> bool:
    """A settled payment came back, the money is available again; False when that was known.

    Raises UnknownPayout, WrongState, BadRequest.
    """
    why = checked_reason(reason)
    with store.writing() as writer:
        item = _sent_item(item_id)
        if item.state == r.RETURNED:
            return False
        _expect_item(item, r.SETTLED)
        postings = _moved([(item.node_id, item.amount_microcredits)], PAID, AVAILABLE)
        writer.append([PayoutItemReturned(item.batch_id, item_id, why, short(by), postings, now or timezone.now())])
    return True


def _moved(amounts: Iterable[tuple[str, int]], source: str, target: str) -> tuple[Posting, ...]:
    """Postings that move each (node, amount) between two accounts of that node."""
    return tuple(
        posting
        for node_id, amount in amounts
        for posting in transfer(node_account(node_id, source), node_account(node_id, target), amount)
    )


def _batch(batch_id: int) -> PayoutBatch:
    batch = PayoutBatch.objects.filter(batch_id=batch_id).first()
    if batch is None:
        raise UnknownPayout(f"there is no payout batch {batch_id}")
    return batch


def _expect(batch: PayoutBatch, *allowed: str) -> None:
    if batch.state not in allowed:
        raise WrongState(f"batch {batch.batch_id} is {batch.state}, not {' or '.join(allowed)}")


def _refuse_suspended(batch: PayoutBatch) -> None:
    """Who was suspended after the draft is not paid; the batch is drafted again without them."""
    nodes = ItemRow.objects.filter(batch_id=batch.batch_id).values("node_id")
    suspended = Node.objects.filter(node_id__in=nodes).exclude(suspended_reason="")
    if names := sorted(suspended.values_list("node_id", flat=True)):
        raise WrongState(f"nodes were suspended since the draft: {', '.join(names[:5])}; cancel and draft again")


def _sent_item(item_id: str) -> ItemRow:
    item = ItemRow.objects.filter(item_id=item_id).first()
    if item is None:
        raise UnknownPayout(f"there is no payout item {item_id!r}")
    _expect(_batch(item.batch_id), r.SENT, r.CLOSED)
    return item


def _expect_item(item: ItemRow, allowed: str) -> None:
    if item.state != allowed:
        raise WrongState(f"item {item.item_id} is {item.state}, not {allowed}: put it right with an adjustment")
