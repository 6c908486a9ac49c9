"""What the payout pages show: batches, their items, a preview of the next one, who is left out and why."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from frontend.payouts.differences import Difference, differences
from market import queries
from market import rows as r
from market.commands.payouts import payable
from market.ledger import AVAILABLE, node_account
from market.models import Balance, Node, OwnerProfile, PayoutBatch, PayoutItem

LEFT_OUT_SHOWN = 200
FAILED_SHOWN = 500


@dataclass(frozen=True)
class LeftOut:
    """An account, or a device without one, that has something available and is not paid. why: a word of words.py."""

    owner_id: str
    name: str
    available: int
    why: str


@dataclass(frozen=True)
class Preview:
    rows: tuple[Difference, ...]
    left_out: tuple[LeftOut, ...]
    more_left_out: int
    total: int
    devices: int
    last: PayoutBatch | None


@dataclass(frozen=True)
class ItemLine:
    item: PayoutItem
    device: str
    owner: str


def batches() -> list[PayoutBatch]:
    return list(PayoutBatch.objects.order_by("-batch_id"))


def last_batch(before: int | None = None) -> PayoutBatch | None:
    """The newest batch that was not cancelled; `before`: older than that one."""
    found = PayoutBatch.objects.exclude(state=r.CANCELLED).order_by("-batch_id")
    return (found.filter(batch_id__lt=before) if before is not None else found).first()


def amounts_of(batch: PayoutBatch | None) -> dict[str, int]:
    """Microcredits by node."""
    if batch is None:
        return {}
    return dict(PayoutItem.objects.filter(batch_id=batch.batch_id).values_list("node_id", "amount_microcredits"))


def preview(cutoff: datetime, minimum_microcredits: int, reserve_percent: int) -> Preview:
    """What a draft with these values would pay now; nothing is moved."""
    amounts, last = payable(cutoff, minimum_microcredits, reserve_percent), last_batch()
    left_out = who_is_left_out(amounts)
    return Preview(
        rows=tuple(compared(amounts, amounts_of(last))),
        left_out=tuple(left_out[:LEFT_OUT_SHOWN]),
        more_left_out=max(0, len(left_out) - LEFT_OUT_SHOWN),
        total=sum(amounts.values()),
        devices=len(amounts),
        last=last,
    )


def batch_differences(batch: PayoutBatch) -> list[Difference]:
    """A batch beside the one before it."""
    return compared(amounts_of(batch), amounts_of(last_batch(before=batch.batch_id)))


def compared(now: dict[str, int], before: dict[str, int]) -> list[Difference]:
    owners = owners_of({*now, *before})
    return differences(now, before, owners, owner_names(owners.values()))


def owners_of(node_ids: Iterable[str]) -> dict[str, str]:
    """Account by node; nodes without one are absent."""
    rows = Node.objects.filter(node_id__in=list(node_ids)).exclude(owner_id="")
    return dict(rows.values_list("node_id", "owner_id"))


def owner_names(owner_ids: Iterable[str]) -> dict[str, str]:
    return dict(OwnerProfile.objects.filter(owner_id__in=set(owner_ids)).values_list("owner_id", "name"))


def who_is_left_out(amounts: dict[str, int]) -> list[LeftOut]:
    """Most money first."""
    rows = Balance.objects.filter(account__endswith=f"/{AVAILABLE}", balance_microcredits__gt=0)
    available = dict(rows.values_list("account", "balance_microcredits"))
    payees = set(OwnerProfile.objects.exclude(payee="").values_list("owner_id", flat=True))
    sums: dict[tuple[str, str], int] = defaultdict(int)
    for node in Node.objects.all():
        money = available.get(node_account(node.node_id, AVAILABLE), 0)
        if money and node.node_id not in amounts:
            sums[node.owner_id or node.node_id, _why(node, payees)] += money
    names = {**owner_names(owner for owner, _ in sums), **queries.node_names(owner for owner, _ in sums)}
    found = [LeftOut(owner, names.get(owner, ""), money, why) for (owner, why), money in sums.items()]
    return sorted(found, key=lambda one: (-one.available, one.owner_id))


def _why(node: Node, payees: set[str]) -> str:
    if node.erased_at is not None:
        return "erased"
    if node.suspended_reason:
        return "suspended"
    if not node.owner_id:
        return "no_account"
    return "below_minimum" if node.owner_id in payees else "no_payee"


def item_lines(items: Iterable[PayoutItem]) -> list[ItemLine]:
    rows = list(items)
    owners = owners_of(item.node_id for item in rows)
    devices, names = queries.node_names(item.node_id for item in rows), owner_names(owners.values())
    return [
        ItemLine(item, devices.get(item.node_id, item.node_id), names.get(owners.get(item.node_id, ""), ""))
        for item in rows
    ]


def failed_items() -> list[ItemLine]:
    """Payments that failed or came back, newest first."""
    rows = PayoutItem.objects.filter(state__in=(r.FAILED, r.RETURNED)).order_by("-changed_at")
    return item_lines(rows[:FAILED_SHOWN])
