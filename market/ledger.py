"""Accounts and postings: signed integer microcredits that sum to zero in every event. Pure. See docs/ledger.md."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from market.errors import Unbalanced

TREASURY = "treasury"
FORFEITED = "forfeited"
ADJUSTMENTS = "adjustments"
SYSTEM_ACCOUNTS = (TREASURY, FORFEITED, ADJUSTMENTS)

PENDING = "pending"
AVAILABLE = "available"
IN_TRANSIT = "in_transit"
PAID = "paid"
NODE_ACCOUNTS = (PENDING, AVAILABLE, IN_TRANSIT, PAID)
NODE_PREFIX = "node/"

# Held rewards are kept in sums of ten minutes: one row instead of one per window, and ten minutes of blur in the hold.
HOLD_BUCKET = timedelta(minutes=10)
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Posting:
    """One line of an entry. The sign is the direction: plus for the account that receives."""

    account: str
    amount_microcredits: int


@dataclass(frozen=True, slots=True)
class HeldPart:
    """Rewards of one node that were credited in the ten minutes before `earned_until`."""

    earned_until: datetime
    amount_microcredits: int


def node_account(node_id: str, kind: str) -> str:
    """`node/<id>/<kind>`; the kinds are listed in docs/ledger.md."""
    return f"{NODE_PREFIX}{node_id}/{kind}"


def node_accounts(node_id: str) -> list[str]:
    """All accounts that a node can have."""
    return [node_account(node_id, kind) for kind in NODE_ACCOUNTS]


def is_node_account(account: str) -> bool:
    return account.startswith(NODE_PREFIX)


def transfer(source: str, target: str, amount_microcredits: int) -> tuple[Posting, ...]:
    """`source` gives, `target` receives; nothing at all for an amount of zero."""
    if amount_microcredits == 0:
        return ()
    return (Posting(source, -amount_microcredits), Posting(target, amount_microcredits))


def credit_postings(node_id: str, amount_microcredits: int) -> tuple[Posting, ...]:
    """Treasury pays, the node's pending account receives; nothing at all for a credit of zero."""
    return transfer(TREASURY, node_account(node_id, PENDING), amount_microcredits)


def check_balanced(postings: Iterable[Posting]) -> None:
    """Raises Unbalanced when the postings do not sum to zero. The database checks the same at every commit."""
    total = sum(posting.amount_microcredits for posting in postings)
    if total != 0:
        raise Unbalanced(f"postings sum to {total} microcredits instead of zero")


def held_until(credited_at: datetime) -> datetime:
    """The end of the ten minutes that a credit belongs to; its hold is counted from there, so it is never too short."""
    return credited_at - (credited_at - _EPOCH) % HOLD_BUCKET + HOLD_BUCKET
