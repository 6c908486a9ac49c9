"""Accounts: a name and a password open one, a wrong one does not, and closing one forgets the person."""

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings

from frontend.models import OwnerLogin
from market import enrolment, queries
from market.models import Event, NodeProfile, OwnerProfile, Posting
from tests.builders import Device
from tests.frontend.owner.conftest import PASSWORD
from tests.frontend.pages import Page

pytestmark = pytest.mark.django_db


def test_an_account_is_opened_and_entered_again(client: Client) -> None:
    opened = client.post("/me/sign-up", {"name": "carol", "password": PASSWORD})
    client.post("/me/sign-out")
    outside = client.get("/me/")
    entered = client.post("/me/sign-in", {"name": "carol", "password": PASSWORD, "next": "/me/close"})

    assert opened["Location"] == "/me/"
    assert outside.status_code == 302
    assert entered["Location"] == "/me/close"
    assert OwnerProfile.objects.get().name == "carol"


@pytest.mark.parametrize(
    ("name", "password"),
    [("", PASSWORD), ("x" * 61, PASSWORD), ("a b", PASSWORD), ("bob", PASSWORD), ("BOB", PASSWORD),
     ("carol", "short"), ("carol", "1234567890"), ("carolina-of-berlin", "carolina-of-berlin")],
)  # fmt: skip
def test_a_bad_name_or_a_weak_password_opens_nothing(client: Client, bob: User, name: str, password: str) -> None:
    response = client.post("/me/sign-up", {"name": name, "password": password})

    assert response.status_code == 422
    assert OwnerLogin.objects.count() == 1
    assert 'role="alert"' in response.content.decode()


def test_a_form_that_was_sent_twice_opens_one_account(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    # The other one of the two is here between our look and our writing.
    monkeypatch.setattr(enrolment, "admit", lambda invite: User.objects.create_user("carol", password=PASSWORD))

    response = client.post("/me/sign-up", {"name": "carol", "password": PASSWORD})

    assert response.status_code == 422
    assert "This name is taken." in response.content.decode()
    assert not OwnerProfile.objects.exists()


def test_a_wrong_password_and_an_unknown_name_sound_the_same(client: Client, bob: User) -> None:
    client.logout()

    wrong = client.post("/me/sign-in", {"name": "bob", "password": "x"})
    unknown = client.post("/me/sign-in", {"name": "nobody", "password": "x"})

    assert wrong.status_code == unknown.status_code == 400
    assert "Name and password do not match" in wrong.content.decode()
    assert "Name and password do not match" in unknown.content.decode()
    assert "_auth_user_id" not in client.session


def test_guessing_is_slow(client: Client, bob: User) -> None:
    client.logout()

    statuses = [
        client.post("/me/sign-in", {"name": "bob", "password": str(number)}).status_code for number in range(11)
    ]
    right = client.post("/me/sign-in", {"name": "bob", "password": PASSWORD})

    assert statuses == [400] * 10 + [429]
    assert right.status_code == 429


def test_signing_in_leads_to_no_foreign_site(client: Client, bob: User) -> None:
    response = client.post("/me/sign-in", {"name": "bob", "password": PASSWORD, "next": "https://evil.example/"})

    assert response["Location"] == "/me/"


def test_closing_forgets_the_person_and_keeps_the_books(client: Client, phone: Device, bob: User) -> None:
    postings = Posting.objects.count()

    wrong = client.post("/me/close", {"password": "x"})
    closed = client.post("/me/close", {"password": PASSWORD}, follow=True)

    assert wrong.status_code == 400
    assert "Account closed" in Page(closed.content.decode()).text
    assert not User.objects.filter(username="bob").exists()
    assert not OwnerProfile.objects.exists()
    assert not NodeProfile.objects.exists()
    assert queries.authenticate(phone.token) is None
    assert Posting.objects.count() == postings
    assert not any("bob" in str(body) for body in Event.objects.values_list("body", flat=True))


def test_a_member_of_staff_keeps_the_login(client: Client) -> None:
    alice = User.objects.create_user("alice", password=PASSWORD, is_staff=True)
    client.force_login(alice)

    client.post("/me/close", {"password": PASSWORD})

    assert User.objects.filter(username="alice").exists()
    assert not OwnerLogin.objects.exists()


def test_an_account_that_changes_too_much_waits_and_may_still_look(
    client: Client, bob: User, settings: Settings
) -> None:
    settings.ACCOUNT_CHANGES_PER_MINUTE = 2

    answers = [client.post("/me/payee", {"payee": f"IBAN {number}"}) for number in range(3)]

    assert [answer.status_code for answer in answers] == [302, 302, 429]
    assert 1 <= int(answers[2]["Retry-After"]) <= 60
    assert "wait" in Page(answers[2].content.decode()).text
    assert client.get("/me/").status_code == 200


def test_whoever_tries_names_and_passwords_waits_and_is_told_how_long(client: Client) -> None:
    tries = [client.post("/me/sign-in", {"name": "bob", "password": "guess"}) for _ in range(11)]

    assert [one.status_code for one in tries] == [400] * 10 + [429]
    assert 1 <= int(tries[-1]["Retry-After"]) <= 60


def test_by_invite_an_account_needs_a_code_that_another_account_made(
    client: Client, bob: User, settings: Settings
) -> None:
    settings.REGISTRATION = "invite"
    shown = Page(client.post("/me/invite", {"note": "Carol"}).content.decode())
    code = shown.text_of("invite-code")
    carol = Client()
    words = {"name": "carol", "password": PASSWORD}

    refused = carol.post("/me/sign-up", words)
    opened = carol.post("/me/sign-up", {**words, "invite": code})
    again = Client().post("/me/sign-up", {**words, "name": "dave", "invite": code})

    assert shown.text_of("invite-link").endswith(f"/worker#invite={code}")
    assert [answer.status_code for answer in (refused, opened, again)] == [403, 302, 403]
    assert "invite code" in refused.content.decode()
    assert {login.user.username for login in OwnerLogin.objects.all()} == {"bob", "carol"}


def test_where_everybody_may_come_there_are_no_invites(client: Client, bob: User) -> None:
    assert client.post("/me/invite", {"note": "Carol"}).status_code == 404
    assert "Invite somebody" not in client.get("/me/").content.decode()


def test_an_account_full_of_devices_registers_none(client: Client, phone: Device, settings: Settings) -> None:
    settings.DEVICES_PER_ACCOUNT = 1

    response = client.post("/me/devices/add", {"name": "one more"})

    assert response.status_code == 409
    assert NodeProfile.objects.count() == 1
