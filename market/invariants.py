"""What must be true of the books at every moment, asked of the tables in SQL. docs/ledger.md lists the invariants."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from django.db.models import Count, F, Q, QuerySet, Sum

from market import rows as r
from market import store
from market.ledger import IN_TRANSIT, NODE_PREFIX, PAID, PENDING, node_account
from market.models import Balance, Hold, PayoutBatch, PayoutItem, Posting

SHOWN = 20


@dataclass(frozen=True)
class BooksReport:
    """accounts: microcredits by account, those of nodes summed by kind. problems: one line per broken invariant."""

    position: int
    postings: int
    accounts: dict[str, int]
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.problems


def check_books() -> BooksReport:
    """Runs every invariant that SQL can answer, while writers wait: all figures are of one moment."""
    with store.writing():
        problems = [problem for check in CHECKS for problem in check()]
        return BooksReport(store.last_position(), Posting.objects.count(), accounts(), tuple(problems))


def accounts() -> dict[str, int]:
    """Balances by account from the postings, those of nodes summed by kind: {"treasury": -9, "nodes/pending": 9}."""
    totals: dict[str, int] = {}
    rows = Posting.objects.values("account").annotate(total=Sum("amount_microcredits")).order_by("account")
    for account, total in rows.values_list("account", "total"):
        kind = account.rpartition("/")[2]
        name = f"nodes/{kind}" if account.startswith(NODE_PREFIX) else account
        totals[name] = totals.get(name, 0) + total
    return totals


def _sums_to_zero() -> Iterator[str]:
    total = Posting.objects.aggregate(total=Sum("amount_microcredits"))["total"] or 0
    if total != 0:
        yield f"all postings sum to {total} microcredits instead of zero"
    unbalanced = Posting.objects.values("event_position").annotate(total=Sum("amount_microcredits")).exclude(total=0)
    for position, total in unbalanced.values_list("event_position", "total")[:SHOWN]:
        yield f"the postings of event {position} sum to {total} microcredits instead of zero"


def _balances_are_sums() -> Iterator[str]:
    sums = Posting.objects.filter(account__startswith=NODE_PREFIX).values("account")
    by_account = dict(sums.annotate(total=Sum("amount_microcredits")).values_list("account", "total"))
    stored = dict(Balance.objects.values_list("account", "balance_microcredits"))
    yield from _differences(stored, by_account, "has a balance of {} microcredits, its postings say {}")


def _nothing_negative() -> Iterator[str]:
    negative = Balance.objects.filter(balance_microcredits__lt=0)
    for account, balance in negative.values_list("account", "balance_microcredits")[:SHOWN]:
        yield f"{account} has {balance} microcredits"


def _pending_is_held() -> Iterator[str]:
    held = Hold.objects.values("node_id").annotate(total=Sum("held_microcredits")).values_list("node_id", "total")
    yield from _differences(
        _balances(PENDING), _by_account(held, PENDING), "has {} microcredits, the holds of the node sum to {}"
    )


def _payouts_match() -> Iterator[str]:
    for kind, state in ((IN_TRANSIT, r.RESERVED), (PAID, r.SETTLED)):
        items = PayoutItem.objects.filter(state=state).values("node_id")
        sums = items.annotate(total=Sum("amount_microcredits")).values_list("node_id", "total")
        yield from _differences(
            _balances(kind), _by_account(sums, kind), "has {} microcredits, the payout items of the node sum to {}"
        )


def _batches_match() -> Iterator[str]:
    found = {
        row["batch_id"]: (row["count"], row["total"], row["open"])
        for row in PayoutItem.objects.values("batch_id").annotate(
            count=Count("item_id"), total=Sum("amount_microcredits"), open=Count("item_id", filter=Q(state=r.RESERVED))
        )
    }
    for batch in PayoutBatch.objects.order_by("batch_id"):
        said = (batch.items, batch.total_microcredits, batch.open_items)
        if said != found.get(batch.batch_id):
            yield f"batch {batch.batch_id} says (items, total, open) {said}, its items {found.get(batch.batch_id)}"
    for batch in PayoutBatch.objects.filter(approved_by=F("drafted_by")):
        yield f"batch {batch.batch_id} was drafted and approved by the same person"


def _balances(kind: str) -> dict[str, int]:
    rows: QuerySet[Balance] = Balance.objects.filter(account__startswith=NODE_PREFIX, account__endswith=f"/{kind}")
    return dict(rows.values_list("account", "balance_microcredits"))


def _by_account(
    sums: QuerySet[Hold, tuple[str, int]] | QuerySet[PayoutItem, tuple[str, int]], kind: str
) -> dict[str, int]:
    return {node_account(node_id, kind): total for node_id, total in sums}


def _differences(stored: dict[str, int], wanted: dict[str, int], text: str) -> Iterator[str]:
    """One line per account that differs; an account that is missing has nothing."""
    wrong = [key for key in sorted(stored.keys() | wanted.keys()) if stored.get(key, 0) != wanted.get(key, 0)]
    for account in wrong[:SHOWN]:
        yield f"{account} {text.format(stored.get(account, 0), wanted.get(account, 0))}"


CHECKS: tuple[Callable[[], Iterator[str]], ...] = (
    _sums_to_zero,
    _balances_are_sums,
    _nothing_negative,
    _pending_is_held,
    _payouts_match,
    _batches_match,
)
