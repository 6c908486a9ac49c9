"""What `/me/` shows, as plain values: devices with their claims and money, and the earnings of the last days."""

from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from django.core.paginator import Paginator
from django.db.models import Sum
from django.db.models.functions import TruncDate
from django.utils import timezone

from frontend.figures import DeviceLine, device_line
from market import histories, queries
from market.histories import Message
from market.ledger import AVAILABLE, IN_TRANSIT, PAID, PENDING, node_accounts
from market.models import Balance, Hold, Node, OwnerProfile
from market.queries import ClaimView

DAYS = 30
DEVICES_SHOWN = 25
# SQLite allows 32,766 values in a query.
QUERY_CHUNK = 1000
WORDS_SHOWN = 3


@dataclass(frozen=True)
class Money:
    """Microcredits by where they are."""

    pending: int = 0
    available: int = 0
    in_transit: int = 0
    paid: int = 0

    @property
    def earned(self) -> int:
        return self.pending + self.available + self.in_transit + self.paid

    @property
    def unpaid(self) -> int:
        return self.pending + self.available + self.in_transit


@dataclass(frozen=True)
class OwnDevice:
    """A device for its owner. line: as everybody's devices are described; trust: audited passes in a row.

    words: the last that operators wrote to the owner.
    """

    node_id: str
    line: DeviceLine
    money: Money
    claims: tuple[ClaimView, ...]
    trust: int
    kernel_class: str
    leaves_at: datetime | None
    suspended_reason: str
    words: tuple[Message, ...]


@dataclass(frozen=True)
class Account:
    """devices: those of one page of the list, `page` of `pages`, counted from 1; total: the money of all of them."""

    devices: tuple[OwnDevice, ...]
    total: Money
    payee_hint: str
    page: int
    pages: int


@dataclass(frozen=True)
class Day:
    """Microcredits earned on one day (UTC) by what became of them until now."""

    day: date
    held: int
    released: int
    forfeited: int

    @property
    def earned(self) -> int:
        return self.held + self.released


def device_ids(owner_id: str) -> list[str]:
    """Devices of an account, newest first. A device that was erased belongs to none any more."""
    nodes = Node.objects.filter(owner_id=owner_id).order_by("-registered_at", "node_id")
    return list(nodes.values_list("node_id", flat=True))


def account(owner_id: str, page: str = "1") -> Account:
    """page: as asked for; whatever is no page of the list is its first or last one."""
    profile = OwnerProfile.objects.filter(owner_id=owner_id).first()
    present = device_ids(owner_id)
    listed = Paginator(present, DEVICES_SHOWN)
    shown = listed.get_page(page)
    devices = [device for node_id in shown.object_list if (device := own_device(node_id)) is not None]
    return Account(
        devices=tuple(devices),
        total=money_of_all(present),
        payee_hint=payee_hint(profile.payee if profile else ""),
        page=shown.number,
        pages=listed.num_pages,
    )


def money_of_all(node_ids: list[str]) -> Money:
    """The money of many devices together, in few queries."""
    sums: Counter[str] = Counter()
    for start in range(0, len(node_ids), QUERY_CHUNK):
        accounts = [name for node_id in node_ids[start : start + QUERY_CHUNK] for name in node_accounts(node_id)]
        for row in Balance.objects.filter(account__in=accounts):
            sums[row.account.rpartition("/")[2]] += row.balance_microcredits
    return Money(sums[PENDING], sums[AVAILABLE], sums[IN_TRANSIT], sums[PAID])


def own_device(node_id: str) -> OwnDevice | None:
    """None for a device that does not exist or was erased."""
    node, line = queries.node(node_id), device_line(node_id)
    if node is None or line is None or node.erased:
        return None
    return OwnDevice(
        node_id=node_id,
        line=line,
        money=money_of(node_id),
        claims=tuple(queries.node_claims(node_id)),
        trust=node.trust,
        kernel_class=node.trusted_class,  # what audits saw computing; at first what it registered
        leaves_at=node.leaves_at,
        suspended_reason=node.suspended_reason,
        words=tuple(histories.messages(node_id, WORDS_SHOWN)),
    )


def money_of(node_id: str) -> Money:
    found = queries.balances(node_id)
    return Money(*(found.get(kind, 0) for kind in (PENDING, AVAILABLE, IN_TRANSIT, PAID)))


def payee_hint(payee: str) -> str:
    """Enough to recognise the own one, too little to use: the last four characters."""
    return f"…{payee[-4:]}" if len(payee) > 8 else "…" if payee else ""


def earnings_by_day(node_ids: list[str], now: datetime | None = None, days: int = DAYS) -> list[Day]:
    """The last `days` days up to today, oldest first; a day without earnings is there with zeros."""
    today = (now or timezone.now()).date()
    first = today - timedelta(days=days - 1)
    rows = (
        Hold.objects.filter(node_id__in=node_ids, earned_until__date__gte=first)
        .annotate(day=TruncDate("earned_until"))
        .values("day")
        .annotate(
            held=Sum("held_microcredits"),
            released=Sum("released_microcredits"),
            forfeited=Sum("forfeited_microcredits"),
        )
    )
    found: dict[date, tuple[int, int, int]] = defaultdict(lambda: (0, 0, 0))
    found |= {row["day"]: (row["held"], row["released"], row["forfeited"]) for row in rows}
    return [Day(day, *found[day]) for day in (first + timedelta(days=number) for number in range(days))]
