"""The payout pages: the whole way of a batch by two people, what is refused, and the log of it all."""

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from market import commands, queries
from market.invariants import check_books
from market.models import PayoutBatch, PayoutItem
from tests.builders import Device, registered
from tests.frontend.pages import Page
from tests.frontend.payouts.conftest import EARNED, staff

pytestmark = pytest.mark.django_db
VALUES = {"minimum_microcredits": "1", "reserve_percent": "0", "cutoff": ""}


def page_of(response: Any) -> Page:
    return Page(response.content.decode())


def drafted(client: Client, key: str = "2026-03") -> PayoutBatch:
    response = client.post("/payouts/draft", {**VALUES, "key": key, "reason": "March"})
    assert response.status_code == 302, response.content.decode()
    return PayoutBatch.objects.latest("batch_id")


def acted(client: Client, batch: PayoutBatch, act: str, reason: str = "compared") -> Any:
    return client.post(f"/payouts/{batch.batch_id}/act", {"act": act, "reason": reason})


def settled(client: Client, text: str) -> Any:
    return client.post("/payouts/settle", {"file": SimpleUploadedFile("s.csv", text.encode())})


def test_a_preview_shows_what_would_be_paid_and_moves_nothing(alice: Client, devices: list[Device]) -> None:
    poor = registered("Erin's phone")
    commands.adjust_balance(poor.node_id, amount_microcredits=5, key="k", by="alice", reason="tested")

    page = page_of(alice.get("/payouts/draft", VALUES))

    assert "0.007864 credits for 2 devices" in page.text
    assert sorted(row[0] for row in page.table("differences")) == ["Carol", "Dan"]
    assert page.table("left-out") == [["Erin's phone", "0.000005", "the device has no account"]]
    assert not PayoutBatch.objects.exists()
    assert queries.balances(devices[0].node_id)["available"] == EARNED


def test_two_people_take_a_payout_from_draft_to_settlement(
    alice: Client, bob: Client, devices: list[Device], var_dir: Path
) -> None:
    batch = drafted(alice)
    acted(bob, batch, "approve")
    acted(alice, batch, "send")
    exported = list(csv.DictReader(io.StringIO(alice.get(f"/payouts/{batch.batch_id}/export.csv").content.decode())))
    first, second = [line["item_id"] for line in exported]

    page = page_of(
        settled(alice, f"item_id,status,reference,reason\n{first},settled,R1,\n{second},failed,,no account\n")
    )

    assert "2 items changed, 0 were known, 0 were refused" in page.text
    assert "1 payment failed or came back" in page.text
    assert [line["payee"] for line in exported] == ["IBAN 1", "IBAN 1"]
    assert sorted(item.state for item in PayoutItem.objects.all()) == ["failed", "settled"]
    failures = page_of(alice.get("/payouts/failed")).table("items")
    assert failures[0][0] == second
    assert failures[0][5] == "no account"
    assert page_of(alice.get(f"/payouts/{batch.batch_id}")).text.count("closed") >= 1
    assert check_books().problems == ()


def test_whoever_drafted_cannot_approve(alice: Client, devices: list[Device]) -> None:
    batch = drafted(alice)

    page = page_of(alice.get(f"/payouts/{batch.batch_id}"))
    refused = acted(alice, batch, "approve")

    assert "somebody else must approve it" in page.text
    assert 'value="approve"' not in page.source
    assert refused.status_code == 403
    assert "somebody else must approve it" in page_of(refused).text
    batch.refresh_from_db()
    assert batch.state == "drafted"


def test_an_act_without_a_reason_is_refused_and_the_page_says_so(
    bob: Client, alice: Client, devices: list[Device]
) -> None:
    batch = drafted(alice)

    refused = acted(bob, batch, "approve", reason=" ")

    assert refused.status_code == 422
    assert "give a reason" in page_of(refused).text


def test_a_cancelled_payout_gives_the_money_back(alice: Client, devices: list[Device]) -> None:
    batch = drafted(alice)
    held = queries.balances(devices[0].node_id)

    acted(alice, batch, "cancel", "wrong month")

    assert held["in_transit"] == EARNED
    assert queries.balances(devices[0].node_id)["available"] == EARNED
    assert "cancelled" in page_of(alice.get("/payouts")).text


def test_the_next_payout_is_compared_with_the_last(alice: Client, bob: Client, devices: list[Device]) -> None:
    drafted(alice)
    commands.adjust_balance(devices[0].node_id, amount_microcredits=2 * EARNED, key="k", by="bob", reason="tested")

    page = page_of(alice.get("/payouts/draft", VALUES))

    rows = {row[0]: row[2:] for row in page.table("differences")}
    assert rows["Carol"] == ["0.007864", "0.003932", "+0.003932", "changed"]
    assert rows["Dan"] == ["0", "0.003932", "-0.003932", "not this time"]
    assert "Compared with payout 1" in page.text


def test_a_key_that_was_used_drafts_nothing_new(alice: Client, devices: list[Device]) -> None:
    first = drafted(alice)

    again = alice.post("/payouts/draft", {**VALUES, "key": "2026-03", "reason": "again"})

    assert again["Location"] == f"/payouts/{first.batch_id}"
    assert PayoutBatch.objects.count() == 1


@pytest.mark.parametrize("values", [{"minimum_microcredits": "0"}, {"reserve_percent": "100"}, {"cutoff": "soon"}])
def test_a_draft_with_wrong_values_is_refused_on_the_page(
    alice: Client, devices: list[Device], values: dict[str, str]
) -> None:
    response = alice.post("/payouts/draft", {**VALUES, "key": "k", "reason": "r", **values})

    assert response.status_code == 400
    assert 'role="alert"' in response.content.decode()
    assert not PayoutBatch.objects.exists()


@pytest.mark.parametrize("text", ["", "no,such,columns\n1,2,3\n", "\ud800"])
def test_a_file_that_is_no_settlement_is_refused(alice: Client, devices: list[Device], text: str) -> None:
    content = text.encode("utf-8", "surrogatepass")

    response = alice.post("/payouts/settle", {"file": SimpleUploadedFile("s.csv", content)})

    assert response.status_code in (400, 422)
    assert 'role="alert"' in response.content.decode()


def test_lines_that_contradict_the_books_are_shown(alice: Client, devices: list[Device]) -> None:
    page = page_of(settled(alice, "item_id,status\npayout-000009-0001,settled\n"))

    assert "1 were refused" in page.text
    assert "line 2: unknown_payout" in page.text


def test_the_log_tells_who_did_what_and_why(alice: Client, bob: Client, devices: list[Device]) -> None:
    acted(bob, drafted(alice), "approve", "compared with the report")

    everything = page_of(alice.get("/payouts/audit")).table("acts")
    by_bob = page_of(alice.get("/payouts/audit?by=bob")).table("acts")
    by_word = page_of(alice.get("/payouts/audit?words=REPORT+compared")).table("acts")
    by_kind = page_of(alice.get("/payouts/audit?name=payout-drafted")).table("acts")

    assert [row[1:4] for row in everything[:2]] == [
        ["bob", "payout-approved", "compared with the report"],
        ["alice", "payout-drafted", "March"],
    ]
    assert by_bob == by_word == [everything[0]]
    assert by_kind == [everything[1]]


def test_words_to_an_owner_are_the_why_of_a_message(alice: Client, devices: list[Device]) -> None:
    commands.message_node(devices[0].node_id, text="Please update your phone.", by="dan")

    everything = page_of(alice.get("/payouts/audit")).table("acts")
    by_word = page_of(alice.get("/payouts/audit?words=update")).table("acts")

    assert everything[0][1:4] == ["dan", "node-messaged", "Please update your phone."]
    assert by_word == [everything[0]]


def test_a_long_log_goes_on_with_older_lines(alice: Client, devices: list[Device]) -> None:
    for number in range(101):
        commands.adjust_balance(
            devices[0].node_id, amount_microcredits=1, key=f"k{number}", by="dan", reason=f"r{number}"
        )

    page = page_of(alice.get("/payouts/audit?by=dan"))
    older = page.source.rpartition("before=")[2].partition('"')[0]
    rest = page_of(alice.get(f"/payouts/audit?by=dan&before={older}"))

    assert [row[3] for row in page.table("acts")] == [f"r{number}" for number in range(100, 0, -1)]
    assert [row[3] for row in rest.table("acts")] == ["r0"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("get", "/payouts/draft"),
        ("post", "/payouts/draft"),
        ("post", "/payouts/settle"),
        ("get", "/payouts/1/export.csv"),
        ("post", "/payouts/1/act"),
    ],
)
def test_who_may_only_look_does_nothing(devices: list[Device], alice: Client, method: str, path: str) -> None:
    drafted(alice)
    reader = staff("reader")

    looked = reader.get("/payouts/1")
    response = getattr(reader, method)(path, {"act": "cancel", "reason": "x"})

    assert looked.status_code == 200
    assert response.status_code == 403
    assert PayoutBatch.objects.get().state == "drafted"


@pytest.mark.parametrize("path", ["/payouts", "/payouts/draft", "/payouts/1", "/payouts/failed", "/payouts/audit"])
def test_strangers_are_asked_to_log_in(path: str) -> None:
    response = Client().get(path)

    assert response.status_code == 302
    assert "login" in response["Location"]


def test_unknown_payouts_and_acts_do_not_exist(alice: Client, devices: list[Device]) -> None:
    batch = drafted(alice)

    assert alice.get("/payouts/99").status_code == 404
    assert acted(alice, batch, "burn").status_code == 404
