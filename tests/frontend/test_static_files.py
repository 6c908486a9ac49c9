"""frontend/static_files.py: static files with and without an event loop, and nothing else touched."""

import pytest
from django.contrib.staticfiles import finders
from django.test import AsyncClient, Client
from pytest_django import Settings

STYLE = "/static/frontend/style.css"


def style() -> bytes:
    with open(str(finders.find("frontend/style.css")), "rb") as file:
        return file.read()


@pytest.fixture(params=["debug", "production"])
def _mode(request: pytest.FixtureRequest, settings: Settings) -> None:
    settings.DEBUG = request.param == "debug"


@pytest.mark.usefixtures("_mode")
async def test_an_asynchronous_server_sends_the_file_whole() -> None:
    response = await AsyncClient().get(STYLE)

    assert response.status_code == 200
    assert response["Content-Type"].startswith("text/css")
    assert response.content == style()
    assert not response.streaming


@pytest.mark.usefixtures("_mode")
def test_a_synchronous_server_sends_the_file_whole() -> None:
    response = Client().get(STYLE)

    assert (response.status_code, response.content) == (200, style())


def test_a_part_and_an_unchanged_file_are_answered_as_such() -> None:
    client = Client()
    whole = client.get(STYLE)

    part = client.get(STYLE, headers={"range": "bytes=3-9"})
    unchanged = client.get(STYLE, headers={"if-none-match": whole["ETag"]})
    head = client.head(STYLE)

    assert (part.status_code, part.content) == (206, style()[3:10])
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    assert (head.content, head["Content-Length"]) == (b"", str(len(style())))


async def test_other_addresses_go_to_their_views() -> None:
    response = await AsyncClient().get("/healthz")

    assert response.json() == {"alive": True}


async def test_a_missing_file_is_not_found() -> None:
    response = await AsyncClient().get("/static/frontend/absent.css")

    assert response.status_code == 404


@pytest.mark.usefixtures("_mode")
def test_a_path_that_climbs_out_is_not_found(client: Client) -> None:
    assert client.get("/static/../../config/settings.py").status_code == 404


def test_the_address_that_browsers_guess_leads_to_the_icon() -> None:
    response = Client().get("/favicon.ico", follow=True)

    assert response.redirect_chain == [("/static/frontend/icon.svg", 301)]
    assert (response.status_code, response["Content-Type"]) == (200, "image/svg+xml")
