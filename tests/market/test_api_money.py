"""market/api.py and market/statements.py: what a device reads and says about its money, token and plans."""

import csv
import io
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from market import commands, statements
from market.errors import BadRequest
from market.models import OwnerProfile
from tests.builders import demo_build, later, payable_device, registered
from tests.market.test_api import NO_MONEY, Caller, assert_error

pytestmark = pytest.mark.django_db


@pytest.fixture
def stranger(client: Client) -> Caller:
    commands.publish_build(demo_build())
    return Caller(client)


def test_a_device_reads_its_trust_and_its_money_by_account(
    client: Client, stranger: Caller, settings: Settings
) -> None:
    settings.HOLD_SECONDS = 0.0
    device = payable_device()
    bob = Caller(client, device.token)
    commands.record_audits(device.node_id, "numpy", 12, "backbone", key="a")
    held = bob.get("/api/me").json()
    commands.release_earnings(later(600))

    me = bob.get("/api/me").json()

    assert held["balance_microcredits"] == {**NO_MONEY, "pending": 3932}
    assert me["balance_microcredits"] == {**NO_MONEY, "available": 3932}
    assert (me["trust"], me["has_payee"], me["leaves_at"]) == (12, True, None)


def test_a_statement_has_every_movement_with_its_reason(client: Client, stranger: Caller, settings: Settings) -> None:
    settings.HOLD_SECONDS = 0.0
    device = payable_device()
    bob = Caller(client, device.token)
    commands.release_earnings(later(600))
    commands.adjust_balance(device.node_id, 68, by="alice", reason="=lost window", key="a")

    answer = bob.get("/api/me/statement.csv")
    rows = list(csv.DictReader(io.StringIO(answer.content.decode())))

    assert answer["Content-Type"].startswith("text/csv")
    assert [(row["event"], row["account"], row["amount_credits"]) for row in rows] == [
        ("work-credited", "pending", "0.003932"),
        ("earnings-released", "pending", "-0.003932"),
        ("earnings-released", "available", "0.003932"),
        ("balance-adjusted", "available", "0.000068"),
    ]
    assert rows[0]["detail"] == "1000 rows until 2026-03-01T09:01:00+00:00, claims 1"
    assert rows[3]["detail"] == "'=lost window"


def test_a_statement_is_cut_by_time_and_belongs_to_one_device(client: Client, stranger: Caller) -> None:
    device, other = payable_device(), payable_device("Carol", layer=1)
    bob = Caller(client, device.token)
    tomorrow = (timezone.now() + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    yesterday = (timezone.now() - timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")

    def lines(query: str) -> int:
        return len(bob.get(f"/api/me/statement.csv?{query}").content.splitlines()) - 1

    assert [lines(""), lines(f"since={yesterday}"), lines(f"since={tomorrow}")] == [1, 1, 0]
    assert [lines(f"until={tomorrow}"), lines(f"until={yesterday}")] == [1, 0]
    assert_error(bob.get("/api/me/statement.csv?since=2026-03-01T00:00:00"), 422, "bad_request")
    assert len(Caller(client, other.token).get("/api/me/statement.csv").content.splitlines()) == 2


def test_a_device_changes_its_token_its_payee_and_its_plans(client: Client, stranger: Caller) -> None:
    device = registered()
    bob = Caller(client, device.token)
    payees = [
        bob.put("/api/me/payee", {"payee": payee}).json()["has_payee"] for payee in ("IBAN 1", "IBAN 2", "", "IBAN 3")
    ]
    at = (timezone.now() + timedelta(hours=1)).isoformat()
    planned = bob.put("/api/me/leave", {"leaves_at": at, "reason": "train"}).json()
    leaving = bob.get("/api/me").json()
    refused = bob.post("/api/claims", {"best_for_budget_bytes": 10**9})
    assert_error(bob.put("/api/me/leave", {"leaves_at": at, "reason": "\u0000"}), 422, "bad_request")
    bob.put("/api/me/leave", {"leaves_at": None})
    staying = bob.get("/api/me").json()
    token = bob.post("/api/me/token").json()["token"]

    assert payees == [True, True, False, True]
    assert OwnerProfile.objects.get().payee == "IBAN 3"
    assert planned["leaves_at"] == leaving["leaves_at"]
    assert (leaving["reason"], staying["reason"], staying["leaves_at"]) == ("leaving", "not_claimed", None)
    assert_error(refused, 409, "leaving")
    assert_error(bob.get("/api/me"), 401, "bad_token")
    assert Caller(client, token).get("/api/me").status_code == 200


def test_a_statement_that_is_too_long_is_asked_for_in_parts(stranger: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    device = payable_device()
    monkeypatch.setattr(statements, "LINE_LIMIT", 0)

    with pytest.raises(BadRequest, match="shorter time"):
        statements.statement(device.node_id)
