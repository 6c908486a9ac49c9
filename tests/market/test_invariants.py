"""market/invariants.py, its task, and the commands of operators: the books, and who may change them."""

import json
import logging
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db.models import F
from pytest_django import Settings

from market import commands, queries, tasks
from market.invariants import check_books
from market.models import Balance, Hold, PayoutBatch, PayoutItem, Posting
from tests.builders import MORNING, Device, demo_build, later, payable_device

pytestmark = pytest.mark.django_db


@pytest.fixture
def bob(settings: Settings, tmp_path: Path) -> Device:
    settings.HOLD_SECONDS = 0.0
    settings.VAR_DIR = tmp_path
    commands.publish_build(demo_build(), now=MORNING)
    device = payable_device()
    commands.release_earnings(later(600))
    return device


def manage(*arguments: object) -> str:
    """What a management command prints, when it exits 0."""
    output = StringIO()
    call_command(*map(str, arguments), stdout=output)
    return output.getvalue()


def refused(*arguments: object) -> str:
    """What it prints, when it exits 1."""
    output = StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command(*map(str, arguments), stdout=output, stderr=output)
    assert ended.value.code == 1
    return output.getvalue()


def draft() -> int:
    return commands.draft_payout(key="k", by="alice", reason="March", minimum_microcredits=1, reserve_percent=0)


@pytest.mark.parametrize(
    ("drift", "shown"),
    [
        (lambda: Posting.objects.filter(event_position=5).delete(), "has a balance of"),
        (lambda: Balance.objects.update(balance_microcredits=F("balance_microcredits") + 1), "has a balance of"),
        (lambda: Hold.objects.update(held_microcredits=5), "the holds of the node sum to 5"),
        (lambda: PayoutItem.objects.update(state="settled"), "the payout items of the node sum to"),
        (lambda: PayoutBatch.objects.update(total_microcredits=1), "batch 1 says"),
    ],
)
def test_every_kind_of_drift_is_found(bob: Device, drift: Callable[[], object], shown: str) -> None:
    draft()
    assert check_books().ok

    drift()

    assert any(shown in problem for problem in check_books().problems)
    assert shown in refused("ledger", "--check", "--quick")


def test_the_books_can_be_shown_and_checked(bob: Device) -> None:
    shown, checked = manage("ledger"), manage("ledger", "--check")
    report = json.loads(manage("ledger", "--check", "--json"))

    assert "nodes/available" in shown
    assert "0.003932" in shown
    assert checked.endswith("the books are right\n")
    assert report["ok"]
    assert report["microcredits"] == {"nodes/available": 3932, "nodes/pending": 0, "treasury": -3932}


def test_a_check_with_a_replay_finds_what_the_sums_do_not(bob: Device) -> None:
    Hold.objects.update(released_microcredits=1)

    assert "released_microcredits is 1" in refused("ledger", "--check")
    assert manage("ledger", "--check", "--quick").endswith("the books are right\n")


def test_the_task_logs_what_is_wrong(bob: Device, caplog: pytest.LogCaptureFixture) -> None:
    assert tasks.check_ledger()
    Hold.objects.update(held_microcredits=5)

    with caplog.at_level(logging.ERROR):
        assert not tasks.check_ledger()

    assert "the holds of the node sum to 5" in caplog.text


def test_a_payout_from_draft_to_settlement_on_the_command_line(bob: Device, tmp_path: Path) -> None:
    who = ("--by", "alice", "--reason", "March")
    drafted = manage("payout", "draft", "--key", "2026-03", "--minimum", 1, *who)
    again = manage("payout", "draft", "--key", "2026-03", "--minimum", 1, *who)
    same = refused("payout", "approve", 1, *who)
    approved = manage("payout", "approve", 1, "--by", "bob", "--reason", "checked")
    sent = manage("payout", "send", 1, *who)
    exported = manage("payout", "export", 1)
    settlement = tmp_path / "settlement.csv"
    settlement.write_text("item_id,status,reference\npayout-000001-0001,settled,b1\nnobody,settled,b2\n")
    settled = refused("payout", "settle", settlement, "--by", "alice")

    assert drafted == again == "batch 1: drafted, 1 items (1 open), 0.003735 credits, drafted by alice\n"
    assert same.startswith("same_person: ")
    assert "approved by bob" in approved
    assert sent == "sent: payout-000001.csv\n"
    assert exported.splitlines() == (tmp_path / "payouts" / "payout-000001.csv").read_text().splitlines()
    assert "1 items changed, 0 were known, 1 refused" in settled
    assert "payout-000001-0001" in manage("payout", "show", 1)
    assert "closed" in manage("payout", "list")
    assert "wrong_state" in refused("payout", "cancel", 1, *who)
    assert queries.balances(bob.node_id)["paid"] == 3735
    with pytest.raises(CommandError):
        manage("payout", "settle", tmp_path / "missing.csv", "--by", "alice")


def test_what_an_operator_does_with_money_and_devices_is_an_event_with_who_and_why(bob: Device) -> None:
    who = ("--by", "alice", "--reason", "tested")
    owner_id = manage("node", "owner", "--name", "Bob").strip()
    manage("node", "link", bob.node_id, owner_id, *who)
    manage("ledger", "adjust", bob.node_id, 5, "--key", "1", *who)
    voided = manage("ledger", "forfeit", bob.node_id, *who)
    manage("node", "suspend", bob.node_id, *who)
    manage("node", "reinstate", bob.node_id, *who)
    quarantined = manage("node", "quarantine", bob.node_id, *who)
    manage("node", "rotate", bob.node_id, *who)
    manage("node", "revoke", bob.node_id, *who)
    manage("incident", "2026-03-01T08:00:00Z", "2026-03-01T09:00:00Z", *who)
    manage("node", "erase", bob.node_id, *who)
    erased = manage("node", "erase-owner", owner_id, *who)

    assert (voided, quarantined) == ("0.000000 credits of " + bob.node_id + " voided\n", "0 microcredits voided\n")
    assert erased == "erased with 0 devices\n"
    assert "unknown_node" in refused("node", "suspend", "nobody", *who)
    assert "bad_request" in refused("ledger", "restore", 1, *who)
    assert "bad_request" in refused("incident", "2026-03-01T10:00:00Z", "2026-03-01T09:00:00Z", *who)
