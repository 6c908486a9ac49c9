"""market/ledger.py."""

import pytest

from market.errors import Unbalanced
from market.ledger import Posting, check_balanced, credit_postings, is_node_account, node_account


def test_a_credit_takes_from_the_treasury_what_it_gives() -> None:
    postings = credit_postings("bob", 7)

    assert [(posting.account, posting.amount_microcredits) for posting in postings] == [
        ("treasury", -7),
        ("node/bob/pending", 7),
    ]
    check_balanced(postings)


def test_a_credit_of_zero_moves_nothing() -> None:
    assert credit_postings("bob", 0) == ()


def test_an_unbalanced_entry_is_refused() -> None:
    with pytest.raises(Unbalanced, match="sum to 1"):
        check_balanced([Posting("treasury", -4), Posting("node/bob/pending", 5)])


def test_only_accounts_of_nodes_have_a_balance_row() -> None:
    assert is_node_account(node_account("bob", "pending"))
    assert not is_node_account("treasury")
