"""Accounts and postings: signed integer microcredits that sum to zero in every event. Pure. See docs/ledger.md."""

from collections.abc import Iterable
from dataclasses import dataclass

from market.errors import Unbalanced

TREASURY = "treasury"
PENDING = "pending"
NODE_PREFIX = "node/"


@dataclass(frozen=True, slots=True)
class Posting:
    """One line of an entry. The sign is the direction: plus for the account that receives."""

    account: str
    amount_microcredits: int


def node_account(node_id: str, kind: str) -> str:
    """`node/<id>/<kind>`; the kinds are listed in docs/ledger.md."""
    return f"{NODE_PREFIX}{node_id}/{kind}"


def is_node_account(account: str) -> bool:
    return account.startswith(NODE_PREFIX)


def credit_postings(node_id: str, amount_microcredits: int) -> tuple[Posting, ...]:
    """Treasury pays, the node's pending account receives; nothing at all for a credit of zero."""
    if amount_microcredits == 0:
        return ()
    return (
        Posting(TREASURY, -amount_microcredits),
        Posting(node_account(node_id, PENDING), amount_microcredits),
    )


def check_balanced(postings: Iterable[Posting]) -> None:
    """Raises Unbalanced when the postings do not sum to zero. The database checks the same at every commit."""
    total = sum(posting.amount_microcredits for posting in postings)
    if total != 0:
        raise Unbalanced(f"postings sum to {total} microcredits instead of zero")
