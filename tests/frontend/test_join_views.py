"""/join: a device is registered once per form, its token shown once, its state told to its own browser."""

import re
import shlex
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from inference.worker.options import TOKEN_VARIABLE, parse_options
from market import commands, presence, queries
from market.models import Event, NodeProfile
from tests.builders import DEMO_EXPERT_BYTES, FINGERPRINT, claimed, demo_build, verified
from tests.builders import Device as Node
from tests.frontend.pages import Page

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _demo_model(settings: Settings) -> None:
    settings.REDIS_URL = ""
    settings.PUBLIC_URL = "https://swarm.example"
    commands.publish_build(demo_build())


def join(client: Client, *, name: str = "Bob's phone", experts: str = "8", form_id: str = "f1") -> Page:
    response = client.post("/join", {"name": name, "experts": experts, "form_id": form_id})
    return Page(response.content.decode())


def node_of(page: Page) -> Node:
    """The node of the shown command, read as its owner's shell and the worker read it."""
    assignment, *command = shlex.split(page.text_of("command"))
    name, _, token = assignment.partition("=")
    assert command[:3] == ["python", "-m", "inference.worker"]
    assert name == TOKEN_VARIABLE
    found = queries.authenticate(token)
    assert found is not None
    return Node(found.node_id, token)


def test_the_form_offers_budgets_in_experts_and_real_bytes(client: Client) -> None:
    page = Page(client.get("/join").content.decode())

    options = re.findall(r'<option value="(\d*)"[^>]*>([^<]+)</option>', page.source)
    assert ("1", "1 expert, 111 kB") in options
    assert ("8", "8 experts, 885 kB") in options
    assert options[-1] == ("256", "256 experts, 28.3 MB")


def test_a_link_fills_the_form_in(client: Client) -> None:
    page = Page(client.get("/join?name=Carol%27s+laptop&experts=16").content.decode())

    assert page.attribute("name", "value") == "Carol's laptop"
    assert '<option value="16" selected>' in page.source


def test_a_registered_device_gets_a_command_that_the_worker_understands(client: Client) -> None:
    page = join(client)

    options = parse_options(shlex.split(page.text_of("command"))[4:])
    assert options.server == "https://swarm.example"
    assert options.budget_bytes == 8 * DEMO_EXPERT_BYTES
    assert queries.node_names([node_of(page).node_id]) == {node_of(page).node_id: "Bob's phone"}


def test_the_command_keeps_the_token_out_of_the_list_of_processes(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = join(client)

    node = node_of(page)
    arguments = shlex.split(page.text_of("command"))[4:]
    monkeypatch.setenv(TOKEN_VARIABLE, node.token)
    assert parse_options(arguments).token == node.token
    assert not any(node.token in argument for argument in arguments)


def test_a_phone_is_added_by_a_code_or_a_link_with_the_same_token(client: Client) -> None:
    page = join(client)

    assert f'href="https://swarm.example/worker#token={node_of(page).token}"' in page.source
    assert 'class="qr"' in page.source
    assert page.inline_scripts_and_styles() == []


def test_without_a_budget_the_worker_decides(client: Client) -> None:
    page = join(client, experts="")

    assert "--budget" not in page.text_of("command")


def test_the_token_is_shown_once_and_kept_nowhere(client: Client) -> None:
    token = node_of(join(client)).token

    again = client.get("/join").content.decode()

    assert token not in again
    assert token not in str(dict(client.session))
    assert all(token not in str(event.body) for event in Event.objects.all())


def test_a_form_that_is_sent_twice_registers_one_device(client: Client) -> None:
    join(client)

    second = join(client)

    assert NodeProfile.objects.count() == 1
    assert not second.has_id("command")
    assert "sent already" in second.text
    assert "Bob's phone" in second.text_of("devices")


@pytest.mark.parametrize("name", ["x" * 61, "a\x07b", "\u202eevil"])
def test_a_name_that_cannot_be_shown_is_refused_on_the_page(client: Client, name: str) -> None:
    response = client.post("/join", {"name": name, "experts": "8", "form_id": "f1"})

    assert response.status_code == 422
    assert "name must be" in Page(response.content.decode()).text
    assert NodeProfile.objects.count() == 0


def test_an_address_registers_so_many_devices_per_minute(client: Client, settings: Settings) -> None:
    settings.REGISTRATIONS_PER_MINUTE = 2

    answers = [
        client.post("/join", {"name": "x", "form_id": f"f{number}"}, REMOTE_ADDR="203.0.113.9") for number in range(3)
    ]

    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert 1 <= int(answers[2]["Retry-After"]) <= 60


def test_the_form_needs_the_token_that_the_page_carries() -> None:
    response = Client(enforce_csrf_checks=True).post("/join", {"name": "x", "form_id": "f1"})

    assert response.status_code == 403


def test_a_device_is_new_then_getting_ready_then_working_then_away(client: Client) -> None:
    node = node_of(join(client))

    def state() -> str:
        return Page(client.get("/join/devices").content.decode()).text

    new = state()
    presence.mark_seen(node.node_id, timezone.now())
    claim = claimed(node, 0, 0, 8, now=timezone.now())
    ready = state()
    verified(claim, now=timezone.now())
    working = state()
    presence.mark_seen(node.node_id, timezone.now() - timedelta(minutes=5))
    away = state()

    assert "new has not started yet" in new
    assert "getting ready" in ready
    assert "downloads what it holds" in ready
    assert "+ 8 soon" in ready
    assert "working" in working
    assert "Experts8" in working
    assert "away" in away
    assert "5" in away


def test_a_suspended_device_is_told_why(client: Client) -> None:
    node = node_of(join(client))
    commands.suspend_node(node.node_id, reason="wrong results", by="admin")

    page = client.get("/join/devices").content.decode()

    assert "suspended" in page
    assert "wrong results" in page


def test_another_browser_sees_no_device(client: Client) -> None:
    join(client)

    page = Page(Client().get("/join/devices").content.decode())

    assert "Bob" not in page.text
    assert page.attribute("devices", "hx-get") is None


def test_only_a_list_with_devices_is_refreshed(client: Client) -> None:
    page = join(client)

    assert page.attribute("devices", "hx-get") == "/join/devices"


def test_without_a_model_a_device_may_still_register(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "builds", lambda kind="experts": [])

    page = join(client)

    assert page.has_id("command")
    assert "No model is offered at the moment" in page.text
    assert FINGERPRINT not in page.text
