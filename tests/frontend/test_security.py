"""frontend/security.py: every page says what it may load, and answers in order while a store is out of reach."""

from typing import Any

import pytest
from django.db import OperationalError
from django.test import AsyncClient, Client

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
