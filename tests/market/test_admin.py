"""market/admin.py, admin_acts.py, admin_money.py: all can be read, nothing be edited; acts say who and why."""

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from pytest_django import Settings

from market import commands, queries
from market.models import Event, OwnerProfile, PayoutBatch
from tests.builders import (
    FINGERPRINT,
    MORNING,
    Device,
    claimed,
    demo_build,
    later,
    payable_device,
    registered,
    worked,
)

pytestmark = pytest.mark.django_db
PAGES = [
    "event", "node", "nodeprofile", "claim", "posting", "balance", "build", "layer", "creditedrows", "currentpolicy",
    "payoutbatch", "payoutitem", "hold", "forfeit", "incident", "ownerprofile",
]  # fmt: skip


@pytest.fixture
def operator(client: Client) -> Client:
    client.force_login(User.objects.create_superuser("operator"))
    commands.publish_build(demo_build())
    bob = registered()
    claimed(bob)
    commands.credit_work("k", FINGERPRINT, bob.node_id, MORNING, later(60), [(1, 0, 1000)])
    return client


@pytest.mark.parametrize("page", PAGES)
def test_every_table_can_be_read_and_searched(operator: Client, page: str) -> None:
    assert operator.get(f"/admin/market/{page}/").status_code == 200
    assert operator.get(f"/admin/market/{page}/?q=treasury").status_code == 200
    assert operator.get(f"/admin/market/{page}/add/").status_code == 403


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("key", ["%3F", "-1", "absent", "%D9%A3", "9" * 30, "1e9", "%00"])
def test_a_row_that_cannot_be_is_no_defect(operator: Client, page: str, key: str) -> None:
    # 200: some digits of other scripts are a number to Python, and that row may be.
    for view in ("change", "history", "delete"):
        assert operator.get(f"/admin/market/{page}/{key}/{view}/").status_code in (200, 302, 403, 404)


def test_an_event_can_be_read_and_not_changed(operator: Client) -> None:
    path = f"/admin/market/event/{Event.objects.latest('position').pk}/"

    assert operator.get(f"{path}change/").status_code == 200
    assert operator.post(f"{path}change/", {"name": "forged"}).status_code == 403
    assert operator.post(f"{path}delete/", {"post": "yes"}).status_code == 403
    assert Event.objects.latest("position").name == "work-credited"


@pytest.fixture
def bob(operator: Client, settings: Settings, tmp_path: Path) -> Device:
    settings.HOLD_SECONDS = 0.0
    settings.VAR_DIR = tmp_path
    device = payable_device("Bob Example", layer=1)
    commands.release_earnings(later(600))
    return device


def staff(name: str, *permissions: str) -> Client:
    """Somebody who may look at everything and do what the permissions allow."""
    user = User.objects.create_user(name, is_staff=True)
    views = Permission.objects.filter(content_type__app_label="market", codename__startswith="view_")
    user.user_permissions.set([*views, *Permission.objects.filter(codename__in=permissions)])
    client = Client(raise_request_exception=False)
    client.force_login(user)
    return client


def act(client: Client, page: str, name: str, **values: object) -> str:
    """Does something on a page; where it leads to, or the form that came back."""
    answer = client.post(f"/admin/market/{page}/act/{name}/", values)
    assert answer.status_code in (200, 302), answer.content
    return str(answer.headers.get("Location") or answer.content.decode())


def last_event() -> dict[str, Any]:
    event = Event.objects.latest("position")
    return {"name": event.name, **event.body}


def test_a_payout_needs_two_people_also_in_the_admin(bob: Device, tmp_path: Path) -> None:
    alice, carol = staff("alice", "draft_payouts", "approve_payouts"), staff("carol", "approve_payouts")
    form = {"key": "2026-03", "minimum_microcredits": 1, "reserve_percent": 0, "reason": "March"}

    assert act(alice, "payoutbatch", "draft", **form) == "/admin/market/payoutbatch/"
    assert act(alice, "payoutbatch", "draft", **form) == "/admin/market/payoutbatch/"
    assert "somebody else must approve" in act(alice, "payoutbatch/1", "approve", reason="checked")
    assert "This field is required" in act(carol, "payoutbatch/1", "approve")
    page = alice.get("/admin/market/payoutbatch/1/change/").content.decode()
    assert act(carol, "payoutbatch/1", "approve", reason="checked") == "/admin/market/payoutbatch/1/change/"
    approved = last_event()
    act(alice, "payoutbatch/1", "send", reason="March")
    file = SimpleUploadedFile("s.csv", b"item_id,status\npayout-000001-0001,settled\n")
    act(alice, "payoutbatch", "settle", file=file)

    assert "/admin/market/payoutbatch/1/act/cancel/" in page
    assert (approved["name"], approved["by"], approved["reason"]) == ("payout-approved", "carol", "checked")
    assert (tmp_path / "payouts" / "payout-000001.csv").exists()
    assert alice.get("/admin/market/payoutbatch/1/export.csv").content.count(b"IBAN 1") == 1
    assert PayoutBatch.objects.get().state == "closed"


def test_a_device_is_suspended_quarantined_adjusted_and_erased_with_who_and_why(bob: Device) -> None:
    alice = staff("alice", "operate_nodes")
    page = f"node/{bob.node_id}"
    done = []
    for name in ("suspend", "reinstate", "forfeit", "quarantine", "revoke", "erase"):
        act(alice, page, name, reason="tested")
        done.append(last_event()["name"])
    act(alice, page, "adjust", reason="lost window", amount_microcredits=5, key="k")
    act(alice, page, "adjust", reason="lost window", amount_microcredits=5, key="k")
    adjusted = last_event()

    assert Event.objects.filter(name="node-suspended").get().body["by"] == "alice"
    assert done == [
        "claim-released", "node-reinstated", "node-reinstated", "node-quarantined", "node-token-revoked", "node-erased",
    ]  # fmt: skip
    assert (adjusted["name"], adjusted["by"], adjusted["reason"]) == ("balance-adjusted", "alice", "lost window")
    assert Event.objects.filter(name="balance-adjusted").count() == 1
    assert "microcredits available" in act(alice, page, "adjust", reason="x", amount_microcredits=-(10**9), key="l")


def test_forfeits_incidents_and_persons_have_their_acts(bob: Device) -> None:
    alice = staff("alice", "operate_nodes")
    worked(bob, queries.node_claims(bob.node_id)[0], end=1260)
    commands.forfeit_pending(bob.node_id, reason="wrong answers", by="audit")
    position = Event.objects.latest("position").pk

    act(alice, f"forfeit/{position}", "restore", reason="they were right")
    restored = last_event()["name"]
    times = {"starts_at": "2026-03-01 09:00", "ends_at": "2026-03-01 10:00"}
    act(alice, "incident", "declare", reason="our network", **times)
    declared = last_event()["name"]
    where = act(alice, f"ownerprofile/{OwnerProfile.objects.get().owner_id}", "erase", reason="asked for it")

    assert (restored, declared) == ("earnings-restored", "incident-declared")
    assert where == "/admin/market/ownerprofile/"
    assert not OwnerProfile.objects.exists()


def test_who_may_only_look_can_do_nothing(bob: Device) -> None:
    eve = staff("eve")
    before = Event.objects.count()

    page = eve.get(f"/admin/market/node/{bob.node_id}/change/")
    refusals = [
        eve.get(f"/admin/market/node/{bob.node_id}/act/suspend/"),
        eve.post(f"/admin/market/node/{bob.node_id}/act/suspend/", {"reason": "x"}),
        eve.post("/admin/market/payoutbatch/act/draft/", {"reason": "x"}),
        eve.get("/admin/market/payoutbatch/1/export.csv"),
    ]

    assert page.status_code == 200
    assert b"act/suspend" not in page.content
    assert [refusal.status_code for refusal in refusals] == [403] * 4
    assert eve.get("/admin/market/incident/act/nothing/").status_code == 404
    assert Event.objects.count() == before
    assert Client().post(f"/admin/market/node/{bob.node_id}/act/suspend/").status_code == 302


def test_forms_are_shown_with_what_is_usual(bob: Device, operator: Client) -> None:
    for page in (
        "payoutbatch/act/draft", "payoutbatch/act/settle", "incident/act/declare", f"node/{bob.node_id}/act/adjust",
    ):  # fmt: skip
        answer = operator.get(f"/admin/market/{page}/")
        assert answer.status_code == 200
        assert b"csrfmiddlewaretoken" in answer.content
