"""`/status`: readable without JavaScript, fresh for everybody at once, and silent about who lends."""

import re
from datetime import datetime, timedelta

import pytest
import redis
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from frontend.status import figures
from market import commands, presence
from market.builds import BuildDescription
from tests.builders import FINGERPRINT, claimed, demo_build, registered, stage_build, stage_device, verified
from tests.frontend.pages import Page

pytestmark = pytest.mark.django_db


def shown(client: Client) -> Page:
    response = client.get("/status")
    assert response.status_code == 200
    return Page(response.content.decode())


def test_an_empty_server_says_what_is_missing(client: Client, settings: Settings) -> None:
    settings.REDIS_URL = ""

    page = shown(client)

    assert "not running" in page.text
    assert "No model has been offered yet" in page.text
    assert page.text_of("incidents") == "None."


def test_stages_are_among_neither_maps_nor_figures(client: Client, settings: Settings) -> None:
    settings.REDIS_URL = ""
    commands.publish_build(demo_build())
    commands.publish_build(stage_build())
    verified(claimed(stage_device(), 0, 0, 12))

    found = figures.collect(timezone.now())

    assert [build.kind for build, _ in found.maps] == ["experts"]
    assert (found.stats["experts"]["offered"], found.stats["experts"]["live"]) == (256, 0)
    assert found.stats["workers"]["holding"] == 0
    assert "0 of 256" in shown(client).text


def test_the_page_shows_coverage_and_speed_and_no_names(client: Client, swarm: "redis.Redis") -> None:
    commands.publish_build(demo_build())
    bob = registered("Bob's phone")
    verified(claimed(bob, 0, 0, 8))
    presence.mark_seen(bob.node_id, timezone.now())

    page = shown(client)

    assert "12.5" in page.text  # tokens per second
    assert "8 of 256 experts held (3%)" in page.text
    assert page.count("svg.map rect") == 256
    assert "Bob" not in page.source
    assert bob.node_id not in page.source
    assert "node-1" not in page.source  # the node of the backbone's own figures


def test_every_layer_is_readable_as_numbers(client: Client, swarm: "redis.Redis") -> None:
    commands.publish_build(demo_build())
    verified(claimed(registered(), 2, 0, 8))

    page = shown(client)

    rows = page.table("layers")
    assert len(rows) == 8
    assert rows[2] == ["2", "8 of 32", "0", "1"]


def test_incidents_are_listed_with_their_reason_and_without_who_declared_them(
    client: Client, swarm: "redis.Redis"
) -> None:
    now = timezone.now()
    commands.declare_incident(starts_at=now, ends_at=now + timedelta(hours=1), by="alice", reason="new network cards")

    page = shown(client)

    assert "new network cards" in page.text_of("incidents")
    assert page.text_of("incidents").startswith("now")
    assert "alice" not in page.source


def test_visitors_share_figures_of_a_few_seconds(
    client: Client, swarm: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    real = figures.collect
    calls: list[datetime] = []

    def counted(now: datetime) -> figures.PublicStatus:
        calls.append(now)
        return real(now)

    monkeypatch.setattr(figures, "collect", counted)

    shown(client)
    client.get("/status/live")
    shown(Client())

    assert len(calls) == 1


def test_the_refreshed_parts_are_parts_of_the_page(client: Client, swarm: "redis.Redis") -> None:
    commands.publish_build(demo_build())
    page = shown(client)

    fragment = client.get("/status/live").content.decode()

    replaced = re.findall(r'id="([a-z]+)"[^>]*hx-swap-oob="true"', fragment)
    assert replaced == ["tiles", "maps", "layers", "incidents"]
    assert all(page.has_id(name) for name in replaced)
    assert "hx-swap-oob" not in page.source


def test_a_model_of_full_size_fits_into_a_page(client: Client, swarm: "redis.Redis") -> None:
    big: BuildDescription = demo_build(FINGERPRINT, layers=48, experts=256, expert_bytes=5_308_416)
    commands.publish_build(big)
    for number in range(20):
        node = registered(f"device {number}")
        verified(claimed(node, number, number, number + 8))

    page = shown(client)

    assert len(page.source) < 60_000


@pytest.mark.parametrize("path", ["/", "/status", "/status/live", "/join", "/join/devices"])
def test_pages_allow_no_foreign_and_no_inline_script(client: Client, settings: Settings, path: str) -> None:
    settings.REDIS_URL = ""

    response = client.get(path)

    policy = response["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    page = Page(response.content.decode())
    assert page.inline_scripts_and_styles() == []
    assert response["Cache-Control"].startswith("max-age=0")
