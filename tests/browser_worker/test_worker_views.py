"""`/worker` as the server renders it: what is wanted, what each budget pays, and nothing that needs another server."""

import json
import re
from typing import Any

import pytest
from django.test import Client
from pytest_django import Settings

from market import commands
from tests.builders import DEMO_EXPERT_BYTES, demo_build

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _no_redis(settings: Settings) -> None:
    settings.REDIS_URL = ""


def presets_of(text: str) -> list[dict[str, Any]]:
    found = re.search(r'<script id="presets" type="application/json">(.*?)</script>', text)
    assert found is not None
    presets: list[dict[str, Any]] = json.loads(found[1])
    return presets


def test_it_offers_whole_experts_with_what_they_may_earn(client: Client) -> None:
    commands.publish_build(demo_build())

    response = client.get("/worker")

    presets = presets_of(response.content.decode())
    assert response.status_code == 200
    assert presets[0]["experts"] == 1
    assert all(preset["size_bytes"] == preset["experts"] * DEMO_EXPERT_BYTES for preset in presets)
    assert all(preset["pays"] > 0 for preset in presets)
    assert "0 of" in response.content.decode()


def test_without_a_model_it_says_so_and_offers_nothing(client: Client) -> None:
    response = client.get("/worker")

    assert response.status_code == 200
    assert presets_of(response.content.decode()) == []


def test_scripts_may_come_from_this_server_only(client: Client) -> None:
    response = client.get("/worker")

    assert "script-src 'self';" in response["Content-Security-Policy"]
    assert response["Cache-Control"].startswith("max-age=0")
    assert client.post("/worker").status_code == 405
