"""/keys: staff make and revoke API keys, nobody else sees them."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from inference import api_keys
from tests.frontend.pages import Page

pytestmark = pytest.mark.django_db


@pytest.fixture
def staff(client: Client) -> Client:
    client.force_login(User.objects.create_user("admin", is_staff=True))
    return client


def test_a_key_is_made_shown_once_and_works(staff: Client) -> None:
    page = Page(staff.post("/keys", {"name": "Alice's notebook"}).content.decode())
    again = Page(staff.get("/keys").content.decode())

    key = page.text_of("new-key")
    found = api_keys.authenticate(key)
    assert found is not None
    assert found.name == "Alice's notebook"
    assert key not in again.source
    assert "Alice's notebook" in again.text


def test_a_revoked_key_ends_and_stays_in_the_list(staff: Client) -> None:
    view, key = api_keys.create_key("Mallory")

    response = staff.post(f"/keys/{view.key_id}/revoke", follow=True)

    assert api_keys.authenticate(key) is None
    page = Page(response.content.decode())
    assert "Mallory" in page.text
    assert "revoked" in page.text
    assert f"/keys/{view.key_id}/revoke" not in page.source


def test_a_key_without_a_name_is_refused_on_the_page(staff: Client) -> None:
    response = staff.post("/keys", {"name": "  "})

    assert response.status_code == 400
    assert "1 to 100 characters" in Page(response.content.decode()).text
    assert api_keys.list_keys() == []


@pytest.mark.parametrize("is_known", [False, True])
def test_others_are_sent_to_the_login_and_change_nothing(client: Client, is_known: bool) -> None:
    view, key = api_keys.create_key("Alice")
    if is_known:
        client.force_login(User.objects.create_user("bob"))

    responses = [client.get("/keys"), client.post("/keys", {"name": "x"}), client.post(f"/keys/{view.key_id}/revoke")]

    assert all(response.status_code == 302 for response in responses)
    assert all(response["Location"].startswith("/admin/login/") for response in responses)
    assert api_keys.authenticate(key) is not None
    assert len(api_keys.list_keys()) == 1


def test_revoking_needs_a_post_and_the_forms_token(staff: Client) -> None:
    view, key = api_keys.create_key("Alice")
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(User.objects.get(username="admin"))

    assert staff.get(f"/keys/{view.key_id}/revoke").status_code == 405
    assert strict.post(f"/keys/{view.key_id}/revoke").status_code == 403
    assert api_keys.authenticate(key) is not None


def test_a_key_may_ask_for_trusted_workers_only(staff: Client) -> None:
    staff.post("/keys", {"name": "Careful", "trusted_only": "on"})
    page = Page(staff.post("/keys", {"name": "Ordinary"}).content.decode())

    assert [view.trusted_only for view in api_keys.list_keys()] == [True, False]
    assert "trusted only" in page.text
