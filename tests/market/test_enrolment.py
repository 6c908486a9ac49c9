"""market/enrolment.py and `manage.py invite`: who may come in where registration is not open."""

from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from market import commands, enrolment
from market.errors import BadInvite, BadRequest, DeviceCapReached, InvitesUsed, RegistrationClosed
from market.models import Invite, Node
from tests.builders import registered

pytestmark = pytest.mark.django_db


def enrol(client: Client, **fields: str) -> Any:
    body = {"name": "Bob's phone", "kernel_class": "numpy", **fields}
    return client.post("/api/nodes", body, content_type="application/json")


def test_where_registration_is_open_nobody_is_asked_for_a_code(client: Client) -> None:
    assert enrol(client).status_code == 201
    assert enrol(client, invite="whatever").status_code == 201


def test_a_code_lets_one_device_in_and_no_second(client: Client, settings: Settings) -> None:
    settings.REGISTRATION = "invite"
    code = enrolment.make_invite("Bob", by="olga")

    answers = [enrol(client), enrol(client, invite="guess"), enrol(client, invite=code), enrol(client, invite=code)]

    assert [answer.status_code for answer in answers] == [403, 403, 201, 403]
    assert {answer.json()["error"]["code"] for answer in answers if answer.status_code == 403} == {"bad_invite"}
    assert Node.objects.count() == 1


def test_only_the_digest_of_a_code_is_stored() -> None:
    code = enrolment.make_invite("Bob", by="olga")

    assert code not in str(Invite.objects.values().get())


def test_a_registration_that_fails_gives_the_code_back(client: Client, settings: Settings) -> None:
    settings.REGISTRATION = "invite"
    code = enrolment.make_invite("Bob", by="olga")

    refused = enrol(client, invite=code, kernel_class="no class!")

    assert refused.status_code == 422
    assert enrol(client, invite=code).status_code == 201


def test_an_old_code_opens_nothing(settings: Settings) -> None:
    settings.REGISTRATION = "invite"
    now = timezone.now()
    code = enrolment.make_invite("Bob", by="olga", days=2, now=now)

    enrolment.admit(code, now=now + timedelta(days=1))
    with pytest.raises(BadInvite):
        enrolment.admit(enrolment.make_invite("Bob", by="olga", days=2, now=now), now=now + timedelta(days=3))


def test_where_registration_is_closed_no_code_helps_but_the_servers_own_workers_come_in(
    client: Client, settings: Settings, tmp_path: Path
) -> None:
    code = enrolment.make_invite("Bob", by="olga")
    settings.REGISTRATION, settings.VAR_DIR = "closed", tmp_path
    (tmp_path / enrolment.LOCAL_INVITE_FILE).write_text("of this server\n")

    stranger, local = enrol(client, invite=code), enrol(client, invite="of this server")

    assert (stranger.status_code, stranger.json()["error"]["code"]) == (403, RegistrationClosed.code)
    assert local.status_code == 201


def test_the_join_page_asks_for_the_code_and_refuses_without(client: Client, settings: Settings) -> None:
    settings.REGISTRATION = "invite"
    code = enrolment.make_invite("Bob", by="olga")

    asked = client.get("/join").content.decode()
    refused = client.post("/join", {"name": "x", "form_id": "f1"})
    let_in = client.post("/join", {"name": "x", "form_id": "f2", "invite": code})

    assert 'name="invite"' in asked
    assert refused.status_code == 403
    assert let_in.status_code == 200
    assert Node.objects.count() == 1


def test_an_account_gives_out_so_many_codes_at_once(settings: Settings) -> None:
    settings.INVITES_PER_ACCOUNT = 2
    owner = commands.create_owner("bob")
    for name in ("Carol", "Dave"):
        enrolment.make_invite(name, by="owner", owner_id=owner)

    with pytest.raises(InvitesUsed):
        enrolment.make_invite("Eve", by="owner", owner_id=owner)

    assert [one.note for one in enrolment.open_invites(owner)] == ["Carol", "Dave"]
    assert enrolment.open_invites("") == []


@pytest.mark.parametrize(("uses", "days"), [(0, 1), (10_001, 1), (1, 0), (1, 400)])
def test_an_invite_out_of_bounds_is_refused(uses: int, days: int) -> None:
    with pytest.raises(BadRequest):
        enrolment.make_invite("x", by="olga", uses=uses, days=days)


def test_the_command_makes_a_code_for_several_and_lists_it_without(client: Client, settings: Settings) -> None:
    settings.REGISTRATION = "invite"
    output, table = StringIO(), StringIO()

    call_command("invite", "--uses", "2", "--note", "the club", stdout=output)
    call_command("invite", "--list", stdout=table)

    code = output.getvalue().strip()
    assert [enrol(client, invite=code).status_code for _ in range(3)] == [201, 201, 403]
    assert "the club" in table.getvalue()
    assert code not in table.getvalue()


def test_an_account_has_so_many_devices_and_a_removed_one_makes_room(settings: Settings) -> None:
    settings.DEVICES_PER_ACCOUNT = 2
    owner = commands.create_owner("bob")
    devices = [registered(f"device {number}") for number in range(3)]
    why: Any = {"by": "owner", "reason": "tested"}
    for device in devices[:2]:
        commands.link_node(device.node_id, owner, **why)

    with pytest.raises(DeviceCapReached):
        commands.link_node(devices[2].node_id, owner, **why)
    commands.link_node(devices[0].node_id, owner, **why)
    commands.erase_node(devices[0].node_id, **why)
    commands.link_node(devices[2].node_id, owner, **why)

    assert Node.objects.filter(owner_id=owner, erased_at=None).count() == 2
