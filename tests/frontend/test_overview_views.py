"""The first page: readable without JavaScript, and the prompt box with and without it."""

import re
from typing import Any

import pytest
import redis
from django.test import AsyncClient, Client
from django.utils import timezone
from pytest_django import Settings

from frontend import overview_views
from inference import jobs
from inference.sampling import SamplingParameters
from market import commands, presence
from market.builds import BuildDescription
from tests.builders import FINGERPRINT, MORNING, claimed, demo_build, registered, verified
from tests.frontend.pages import Page
from tests.inference.openai.played_backbone import PlayedBackbone, text_tokens

pytestmark = pytest.mark.django_db


def shown(client: Client) -> Page:
    response = client.get("/")
    assert response.status_code == 200
    return Page(response.content.decode())


def test_an_empty_server_says_what_is_missing(client: Client, settings: Settings) -> None:
    settings.REDIS_URL = ""

    page = shown(client)

    assert "not running" in page.text
    assert "No model has been offered yet" in page.text
    assert "Nobody lends experts" in page.text


def test_the_page_shows_coverage_workers_speed_and_errors(client: Client, swarm: "redis.Redis") -> None:
    commands.publish_build(demo_build())
    bob = registered("Bob's <phone>")
    verified(claimed(bob, 0, 0, 8))
    presence.mark_seen(bob.node_id, timezone.now())
    job = jobs.take_job(jobs.create_job("demo", [1], SamplingParameters()).pk, boot="b1", alive=())
    assert job is not None
    jobs.finish_job(job, finish="error", generated=0, error="context_not_made: secret words")

    page = shown(client)

    assert "12.5" in page.text  # tokens per second
    assert "8 of 256 experts held (3%)" in page.text
    assert "Bob's <phone>" in page.text  # escaped in the source
    assert "generation: context_not_made" in page.text
    assert "secret words" not in page.text
    assert "worker node-1: late, 4 times" in page.text
    assert page.count("svg.map rect") == 256


def test_every_layer_is_readable_as_numbers(client: Client, swarm: "redis.Redis") -> None:
    commands.publish_build(demo_build())
    verified(claimed(registered(), 2, 0, 8))

    page = shown(client)

    rows = page.table("layers")
    assert len(rows) == 8
    assert rows[2] == ["2", "8 of 32", "0", "1"]


def test_the_refreshed_parts_are_parts_of_the_page(client: Client, swarm: "redis.Redis") -> None:
    commands.publish_build(demo_build())
    page = shown(client)

    fragment = client.get("/live").content.decode()

    replaced = re.findall(r'id="([a-z]+)"[^>]*hx-swap-oob="true"', fragment)
    assert replaced == ["tiles", "maps", "layers", "workers", "errors"]
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


@pytest.mark.parametrize("path", ["/", "/live", "/join", "/join/devices"])
def test_pages_allow_no_foreign_and_no_inline_script(client: Client, settings: Settings, path: str) -> None:
    settings.REDIS_URL = ""

    response = client.get(path)

    policy = response["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    page = Page(response.content.decode())
    assert page.inline_scripts_and_styles() == []
    assert response["Cache-Control"].startswith("max-age=0")


# --- the prompt box ---------------------------------------------------------------------------------------------------
async def post(client: AsyncClient, prompt: str, **headers: str) -> Any:
    return await client.post("/try", {"prompt": prompt}, headers=headers)


async def body_of(response: Any) -> str:
    return b"".join([chunk async for chunk in response.streaming_content]).decode()


@pytest.mark.django_db(transaction=True)
async def test_without_javascript_the_answer_comes_with_the_page(played: PlayedBackbone) -> None:
    played.script = lambda job: text_tokens(" was <the> word")

    response = await post(AsyncClient(), "In the beginning")

    page = Page(response.content.decode())
    assert response.status_code == 200
    assert page.text_of("answer") == "In the beginning was <the> word"
    assert not page.is_hidden("answer-box")
    assert response["Content-Security-Policy"]


@pytest.mark.django_db(transaction=True)
async def test_with_javascript_the_answer_is_streamed(played: PlayedBackbone) -> None:
    response = await post(AsyncClient(), "In the beginning", accept="text/event-stream")

    assert response["Content-Type"] == "text/event-stream"
    body = await body_of(response)
    assert '"text":"Hello world"' in body
    assert body.endswith("data: [DONE]\n\n")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("prompt", ["", "   ", "x" * 2001, "word " * 390])
async def test_a_text_that_does_not_fit_is_refused_on_the_page(
    played: PlayedBackbone, settings: Settings, prompt: str
) -> None:
    settings.BACKBONE_CONTEXT_TOKENS = 300

    plain = await post(AsyncClient(), prompt)
    scripted = await post(AsyncClient(), prompt, accept="text/event-stream")

    assert plain.status_code == scripted.status_code == 400
    assert Page(plain.content.decode()).text_of("problem")
    assert scripted.json()["error"]["message"]
    assert played.queued == []


@pytest.mark.django_db(transaction=True)
async def test_a_server_without_backbone_says_so_on_the_page(played: PlayedBackbone) -> None:
    played.client.flushall()

    response = await post(AsyncClient(), "In the beginning")

    assert response.status_code == 503
    page = Page(response.content.decode())
    assert "No backbone is running" in page.text_of("problem")
    assert page.text_of("prompt") == "In the beginning"


@pytest.mark.django_db(transaction=True)
async def test_an_address_has_so_many_prompts_per_minute(played: PlayedBackbone, settings: Settings) -> None:
    settings.DEMO_REQUESTS_PER_MINUTE = 2
    client = AsyncClient()

    statuses = [(await post(client, "In")).status_code for _ in range(3)]

    assert statuses == [200, 200, 429]


@pytest.mark.django_db(transaction=True)
async def test_the_box_needs_the_token_that_the_page_carries(played: PlayedBackbone) -> None:
    response = await post(AsyncClient(enforce_csrf_checks=True), "In the beginning")

    assert response.status_code == 403
    assert played.queued == []


@pytest.mark.parametrize(
    ("public", "demo", "debug", "offered"),
    [(False, False, False, True), (True, False, False, False), (True, True, False, True), (True, False, True, True)],
)
@pytest.mark.django_db(transaction=True)
async def test_strangers_get_the_box_only_when_the_operator_wants_it(
    played: PlayedBackbone, settings: Settings, monkeypatch: pytest.MonkeyPatch,
    public: bool, demo: bool, debug: bool, offered: bool,
) -> None:  # fmt: skip
    settings.DEMO_PROMPT, settings.DEBUG = demo, debug
    monkeypatch.setattr(overview_views, "is_public", lambda values: public)
    client = AsyncClient()

    page = await client.get("/")
    answer = await post(client, "In the beginning")

    assert Page(page.content.decode()).has_id("prompt-form") is offered
    assert answer.status_code == (200 if offered else 403)
    assert bool(played.queued) is offered


def test_a_worker_that_was_not_seen_lately_is_not_connected(client: Client, swarm: "redis.Redis") -> None:
    commands.publish_build(demo_build())
    bob = registered("Bob")
    verified(claimed(bob))
    presence.mark_seen(bob.node_id, MORNING)

    page = shown(client)

    assert page.table("workers") == [["Bob", "no", "8", "885 kB", "none yet"]]
