"""`/worker` as the server renders it: what is wanted, what each budget pays, and nothing that needs another server."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from pytest_django import Settings

from frontend.worker_views import budgets
from market import commands
from tests.builders import DEMO_EXPERT_BYTES, MORNING, demo_build, later, stage_build

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
    assert [preset["experts"] for preset in presets] == [1, 9, 18, 45, 90, 189, 256]
    assert all(preset["size_bytes"] == preset["experts"] * DEMO_EXPERT_BYTES for preset in presets)
    assert all(preset["pays"] > 0 for preset in presets)
    assert "0 of" in response.content.decode()


def test_stages_are_nothing_that_a_page_offers(client: Client) -> None:
    commands.publish_build(stage_build(), now=MORNING)
    before = client.get("/worker").content.decode()
    commands.publish_build(demo_build(), now=MORNING)
    commands.publish_build(stage_build("6" * 32), now=later(60))

    after = client.get("/worker").content.decode()

    assert presets_of(before) == []
    assert [preset["experts"] for preset in presets_of(after)] == [1, 9, 18, 45, 90, 189, 256]


def test_without_a_model_it_says_so_and_offers_nothing(client: Client) -> None:
    response = client.get("/worker")

    assert response.status_code == 200
    assert presets_of(response.content.decode()) == []


def test_budgets_are_round_and_say_what_really_fits() -> None:
    build = replace(demo_build(), expert_bytes=(5_308_416, 6_120_000), experts_per_layer=256, layers=(0, 1))

    found = budgets(build)

    assert found[0] == (6_120_000, 1, 6_120_000)
    assert (42_000_000, 6, 36_720_000) in found
    assert (340_000_000, 55, 336_600_000) in found
    assert all(size <= budget for budget, _, size in found)
    assert [experts for _, experts, _ in found] == sorted({experts for _, experts, _ in found})


def test_no_page_of_another_origin_shares_its_process(client: Client) -> None:
    for path in ("/worker", "/worker/offline"):
        response = client.get(path)
        assert response["Cross-Origin-Opener-Policy"] == "same-origin"
        assert response["Cross-Origin-Embedder-Policy"] == "require-corp"
    assert client.get("/static/worker/worker.js")["Cross-Origin-Embedder-Policy"] == "require-corp"
    assert "Cross-Origin-Embedder-Policy" not in client.get("/static/frontend/copy.js")


def test_the_service_worker_keeps_files_that_exist_and_nothing_of_the_api(client: Client) -> None:
    response = client.get("/worker-shell.js")

    text = response.content.decode()
    kept = re.findall(r'"(/[^"]*)"', text)
    assert response["Content-Type"].startswith("text/javascript")
    assert "/worker/offline" in kept
    assert [client.get(path).status_code for path in kept] == [200] * len(kept)
    assert not [path for path in kept if path.startswith(("/api", "/v1", "/relay"))]


def test_the_manifest_names_icons_that_exist(client: Client) -> None:
    response = client.get("/static/worker/manifest.json")

    manifest = json.loads(response.content)
    assert response["Content-Type"].startswith("application/json")
    assert {icon["purpose"] for icon in manifest["icons"]} == {"any", "maskable"}
    assert [client.get(f"/static/worker/{icon['src']}").status_code for icon in manifest["icons"]] == [200] * 3
    assert "manifest-src 'self'" in client.get("/worker")["Content-Security-Policy"]


def test_the_authority_is_offered_only_where_up_made_one(client: Client, settings: Settings, tmp_path: Path) -> None:
    settings.VAR_DIR = tmp_path
    settings.PUBLIC_URL = "https://phone.test:8443"
    without = client.get("/authority.crt").status_code
    (tmp_path / "tls").mkdir()
    (tmp_path / "tls" / "authority.pem").write_text("-----BEGIN CERTIFICATE-----")

    response = client.get("/authority.crt")

    assert without == 404
    assert response["Content-Type"] == "application/x-x509-ca-cert"
    assert 'href="https://phone.test:8443/worker"' in client.get("/worker").content.decode()


def test_scripts_may_come_from_this_server_only(client: Client) -> None:
    response = client.get("/worker")

    assert "script-src 'self';" in response["Content-Security-Policy"]
    assert response["Cache-Control"].startswith("max-age=0")
    assert client.post("/worker").status_code == 405
