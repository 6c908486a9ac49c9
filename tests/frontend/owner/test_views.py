"""`/me/`: an owner sees and does what concerns their own devices, and nobody else's."""

import csv
import io
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from frontend.owner.accounts import account_of
from inference.gguf_index import open_index
from inference.stages import stage_fingerprint
from market import commands, queries
from market.models import Node, OwnerProfile
from tests.builders import Device, claimed, registered, stage_build, stage_device, verified
from tests.frontend.pages import Page
from tests.model_files import DEMO_MODEL

pytestmark = pytest.mark.django_db


def shown(client: Client) -> Page:
    response = client.get("/me/")
    assert response.status_code == 200
    return Page(response.content.decode())


def test_a_new_account_says_how_to_begin(client: Client, bob: User) -> None:
    page = shown(client)

    assert "No device yet" in page.text
    assert "Nothing was earned" in page.text
    assert "without one nothing is paid out" in page.text


def test_the_page_shows_devices_claims_and_money(client: Client, phone: Device) -> None:
    earned = queries.balances(phone.node_id)["pending"]

    page = shown(client)

    assert earned > 0
    assert "Bob's phone" in page.text
    assert f"{earned / 1e6:.6f}".rstrip("0") in page.text_of("money")
    assert "0–7" in page.text  # experts of the claim
    assert f'id="state-{phone.node_id}"' in page.source


def test_the_refreshed_parts_are_parts_of_the_page(client: Client, phone: Device) -> None:
    page = shown(client)

    fragment = client.get("/me/devices").content.decode()

    for name in (f"badge-{phone.node_id}", f"state-{phone.node_id}"):
        assert page.has_id(name)
        assert f'id="{name}"' in fragment
    assert fragment.count("hx-swap-oob") == 2


def test_a_new_device_is_linked_and_its_link_is_shown_once(client: Client, bob: User) -> None:
    page = Page(client.post("/me/devices/add", {"name": "tablet"}).content.decode())
    again = shown(client)

    node = Node.objects.get()
    assert node.owner_id == account_of(bob)
    assert "/worker#token=" in page.source
    assert "<svg" in page.source
    assert "/worker#token=" not in again.source
    assert "tablet" in again.text


def test_a_device_is_adopted_by_its_token(client: Client, bob: User) -> None:
    device = registered("laptop")

    client.post("/me/devices/adopt", {"token": device.token})

    assert queries.node(device.node_id).owner_id == account_of(bob)  # type: ignore[union-attr]


def test_a_device_registered_in_this_browser_needs_no_token(client: Client, bob: User) -> None:
    client.post("/join", {"name": "laptop", "form_id": "f"})
    node_id = client.session["devices"][0]

    offered = shown(client)
    client.post("/me/devices/adopt", {"node": node_id})

    assert "Take laptop into the account" in offered.text
    assert queries.node(node_id).owner_id == account_of(bob)  # type: ignore[union-attr]


def test_nobody_adopts_a_device_without_proof_or_of_somebody_else(client: Client, bob: User) -> None:
    device = registered("laptop")
    other = registered("Carol's")
    commands.link_node(other.node_id, commands.create_owner("carol"), by="owner", reason="tested")

    by_number = client.post("/me/devices/adopt", {"node": device.node_id})
    by_foreign_token = client.post("/me/devices/adopt", {"token": other.token})

    assert by_number.status_code == 400
    assert by_foreign_token.status_code == 409
    assert not Node.objects.filter(owner_id=account_of(bob)).exists()


def test_a_stage_is_named_by_its_layers_and_lent_by_a_command(client: Client, bob: User, settings: Settings) -> None:
    model = open_index(DEMO_MODEL)
    settings.MODEL_PATH = DEMO_MODEL
    commands.publish_build(stage_build(stage_fingerprint(model.fingerprint), units=2))
    server = stage_device("Bob's server")
    commands.link_node(server.node_id, account_of(bob), by="owner", reason="tested")
    verified(claimed(server, 0, 1, 2))

    page = shown(client)
    renewed = Page(client.post(f"/me/devices/{server.node_id}/token").content.decode())

    assert "layers 4–7" in page.text_of(f"state-{server.node_id}")
    assert page.table("own-devices")[0][:2] == ["layers 4–7", "live"]
    assert "Experts" not in page.text_of("own-devices")
    assert "New link and QR code" not in page.text_of("own-devices")
    assert "python -m inference.stage --server" in renewed.text_of("command")
    assert "#token=" not in renewed.source


def test_a_new_token_ends_the_old_one(client: Client, phone: Device) -> None:
    page = Page(client.post(f"/me/devices/{phone.node_id}/token").content.decode())

    assert "/worker#token=" in page.source
    assert queries.authenticate(phone.token) is None


def test_a_leave_is_planned_and_taken_back(client: Client, phone: Device) -> None:
    client.post(f"/me/devices/{phone.node_id}/leave", {"leaves_at": later_today()})
    planned = shown(client)
    client.post(f"/me/devices/{phone.node_id}/leave", {"leaves_at": ""})

    assert "Leaves at 2" in planned.text
    assert queries.node(phone.node_id).leaves_at is None  # type: ignore[union-attr]


def later_today() -> str:
    return (timezone.now() + timedelta(hours=2)).strftime("%Y-%m-%dT%H:%M")


@pytest.mark.parametrize("text", ["tomorrow", "2020-01-01T00:00", "2999-01-01T10:00"])
def test_a_leave_at_an_impossible_time_is_refused_on_the_page(client: Client, phone: Device, text: str) -> None:
    response = client.post(f"/me/devices/{phone.node_id}/leave", {"leaves_at": text})

    assert response.status_code == 422
    assert 'role="alert"' in response.content.decode()


def test_a_device_with_unpaid_credits_is_removed_only_when_they_are_given_up(client: Client, phone: Device) -> None:
    kept = client.post(f"/me/devices/{phone.node_id}/forget")
    after_first = queries.node(phone.node_id)
    client.post(f"/me/devices/{phone.node_id}/forget", {"give_up": "on"})

    assert kept.status_code == 409
    assert after_first is not None
    assert not after_first.erased
    assert queries.authenticate(phone.token) is None
    assert "Bob's phone" not in shown(client).text


def test_the_payout_method_is_stored_and_only_hinted_at(client: Client, bob: User) -> None:
    client.post("/me/payee", {"payee": "DE89 3704 0044 0532 0130 00"})

    page = shown(client)
    assert OwnerProfile.objects.get().payee == "DE89 3704 0044 0532 0130 00"
    assert "DE89" not in page.source
    assert "Payouts go to …0 00." in page.text


def test_the_statement_names_the_device_of_each_line(client: Client, phone: Device) -> None:
    response = client.get("/me/statement.csv")

    lines = list(csv.DictReader(io.StringIO(response.content.decode())))
    assert response["Content-Type"].startswith("text/csv")
    assert lines[0]["account"] == f"{phone.node_id}/pending"
    assert float(lines[0]["amount_credits"]) > 0


def test_many_devices_are_listed_page_by_page_and_counted_together(client: Client, phone: Device, bob: User) -> None:
    earned = queries.balances(phone.node_id)["pending"]
    for number in range(25):
        newer = registered(f"rack {number:02}", now=timezone.now())
        commands.link_node(newer.node_id, account_of(bob), by="owner", reason="tested")

    first, last = shown(client), Page(client.get("/me/?page=2").content.decode())

    assert "Page 1 of 2" in first.text
    assert "Bob's phone" not in first.text
    assert "Bob's phone" in last.text
    assert f"{earned / 1e6:.6f}".rstrip("0") in first.text_of("money")
    assert client.get("/me/?page=nonsense").status_code == 200
    assert f'id="state-{phone.node_id}"' in client.get("/me/devices?page=2").content.decode()


@pytest.mark.parametrize("act", ["token", "leave", "forget"])
def test_the_devices_of_others_do_not_exist(client: Client, bob: User, act: str) -> None:
    other = registered("Carol's")

    response = client.post(f"/me/devices/{other.node_id}/{act}", {"give_up": "on"})

    assert response.status_code == 404
    assert client.get(f"/me/statement.csv?device={other.node_id}").status_code == 404
    assert queries.authenticate(other.token) is not None


@pytest.mark.parametrize("path", ["/me/", "/me/devices", "/me/statement.csv", "/me/close"])
def test_strangers_are_asked_to_sign_in(path: str) -> None:
    response = Client().get(path)

    assert response.status_code == 302
    assert response["Location"].startswith("/me/sign-in?next=")


def test_pages_carry_the_policy_and_no_inline_script(client: Client, phone: Device) -> None:
    for path in ("/me/", "/me/close", "/me/closed"):
        response = client.get(path)
        assert "default-src 'none'" in response["Content-Security-Policy"]
        assert Page(response.content.decode()).inline_scripts_and_styles() == []


def test_words_of_an_operator_stand_at_the_device(client: Client, phone: Device) -> None:
    commands.message_node(phone.node_id, "Your phone answers late in the evening.", by="olga")

    assert "Your phone answers late in the evening." in client.get("/me/").content.decode()
