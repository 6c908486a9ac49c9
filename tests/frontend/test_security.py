"""frontend/security.py: every page says what it may load, and answers in order while a store is out of reach."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError
from django.test import AsyncClient, Client
from django.urls import URLPattern, URLResolver, get_resolver
from pytest_django import Settings

from frontend import figures
from frontend.status import figures as status_figures
from market import commands
from tests.builders import claimed, demo_build, registered, verified
from tests.frontend.pages import Page


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/status", "/status/live", "/join"])
def test_a_page_while_the_database_is_away_says_so(client: Client, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    def fail(*ignored: object) -> Any:
        raise OperationalError("the password of db.example is wrong")

    monkeypatch.setattr(status_figures, "collect", fail)
    monkeypatch.setattr(figures, "budget_presets", fail)

    response = client.get(path)

    page = Page(response.content.decode())
    assert response.status_code == 503
    assert "try again in a few seconds" in page.text
    assert "password" not in page.text
    assert response["Retry-After"] == "5"
    assert "default-src 'none'" in response["Content-Security-Policy"]


@pytest.mark.django_db
def test_pages_that_need_the_cache_say_so_when_redis_is_away(client: Client, request: pytest.FixtureRequest) -> None:
    commands.publish_build(demo_build())
    verified(claimed(registered()))
    request.getfixturevalue("no_redis")

    responses = [client.get("/status"), client.get("/status/live"), client.post("/join", {"name": "x", "form_id": "f"})]

    assert [response.status_code for response in responses] == [503, 503, 503]


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("no_redis")
async def test_the_prompt_box_says_so_too() -> None:
    client = AsyncClient()

    plain = await client.post("/try", {"prompt": "In the beginning"})
    scripted = await client.post("/try", {"prompt": "In the beginning"}, headers={"accept": "text/event-stream"})

    assert plain.status_code == scripted.status_code == 503
    assert scripted.json()["error"]["code"] == "queue_unreachable"


def addresses(patterns: list[Any], before: str = "") -> Iterator[str]:
    """Every address of the URL list, with a value that fits in the place of each parameter."""
    for pattern in patterns:
        route = before + re.sub(r"^\^|\\Z|\$$|\(\?P<url>.\*\)", "", str(pattern.pattern))
        if isinstance(pattern, URLResolver):
            yield from addresses(pattern.url_patterns, route)
        elif isinstance(pattern, URLPattern):
            yield "/" + re.sub(r"<(int:)?[^>]*>", lambda found: "1" if found[1] else "x", route)


@pytest.fixture
def olga(client: Client) -> Client:
    """Signed in as the operator, who may see everything."""
    client.force_login(User.objects.create_superuser("olga"))
    return client


def pages_of(client: Client, **more: Any) -> dict[str, Any]:
    client.raise_request_exception = False
    found = {address: client.get(address, **more) for address in addresses(get_resolver().url_patterns)}
    is_page = {address: one for address, one in found.items() if one.get("Content-Type", "").startswith("text/html")}
    assert len([one for one in is_page.values() if one.status_code == 200]) > 40
    return is_page


@pytest.mark.django_db
def test_every_page_of_the_url_list_says_what_it_may_load_who_may_frame_it_and_where_it_tells_nothing(
    olga: Client, settings: Settings
) -> None:
    settings.REDIS_URL = ""
    commands.publish_build(demo_build())

    pages = pages_of(olga)

    for address, response in pages.items():
        policy = response["Content-Security-Policy"]
        assert "default-src 'none'" in policy, address
        assert "unsafe" not in policy, address
        assert "frame-ancestors 'none'" in policy, address
        assert response["X-Frame-Options"] == "DENY", address
        assert response["Referrer-Policy"] == "same-origin", address
        assert response["X-Content-Type-Options"] == "nosniff", address
        assert response["Cross-Origin-Opener-Policy"] == "same-origin", address


@pytest.mark.django_db
def test_no_page_of_ours_needs_a_script_or_style_that_its_policy_refuses(olga: Client, settings: Settings) -> None:
    settings.REDIS_URL = ""
    commands.publish_build(demo_build())

    pages = pages_of(olga)

    ours = {address: one for address, one in pages.items() if not address.startswith(("/admin/", "/api/"))}
    inline = {
        address: Page(one.content.decode()).inline_scripts_and_styles()
        for address, one in ours.items()
        if one.status_code == 200
    }
    assert {address: found for address, found in inline.items() if found} == {}


@pytest.mark.django_db
def test_behind_tls_browsers_come_back_by_tls_only(settings: Settings) -> None:
    settings.SECURE_HSTS_SECONDS = 31_536_000

    response = Client().get("/join", secure=True)

    assert response["Strict-Transport-Security"] == "max-age=31536000"


@pytest.mark.django_db
def test_every_form_of_a_page_needs_the_token_that_the_page_carries(settings: Settings) -> None:
    settings.REDIS_URL = ""
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(User.objects.create_superuser("olga"))
    strict.raise_request_exception = False
    programs = ("/api/", "/v1/")

    answers = {
        address: strict.post(address).status_code
        for address in addresses(get_resolver().url_patterns)
        if not address.startswith(programs)
    }

    # 405: takes no form; 301, 302: only leads elsewhere; 404: an address of the admin that there is not.
    assert {address: status for address, status in answers.items() if status not in (403, 405, 301, 302, 404)} == {}
    assert sum(status == 403 for status in answers.values()) > 20
