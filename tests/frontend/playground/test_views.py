"""The playground: a form that answers with and without JavaScript, and what it refuses."""

import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import AsyncClient, Client
from pytest_django import Settings

from frontend.playground import views
from inference.token_stream import StreamedToken
from tests.frontend.pages import Page
from tests.inference.openai.played_backbone import PlayedBackbone, text_tokens

pytestmark = pytest.mark.django_db(transaction=True)


async def post(client: AsyncClient, prompt: str, *, accept: str = "", **fields: str) -> Any:
    return await client.post("/try", {"prompt": prompt, **fields}, headers={"accept": accept})


async def body_of(response: Any) -> str:
    return b"".join([chunk async for chunk in response.streaming_content]).decode()


def events_of(body: str) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: {")]


async def test_without_javascript_the_answer_comes_with_the_page(played: PlayedBackbone) -> None:
    played.script = lambda job: text_tokens(" was <the> word")

    response = await post(AsyncClient(), "In the beginning")

    page = Page(response.content.decode())
    assert response.status_code == 200
    assert page.text_of("answer") == "In the beginning was <the> word"
    assert not page.is_hidden("answer-box")
    assert response["Content-Security-Policy"]


async def test_without_javascript_every_token_has_a_line_with_its_alternatives(played: PlayedBackbone) -> None:
    top = ((300, " was", -0.1), (301, " is", -2.5))
    played.script = lambda job: [StreamedToken(1, 0, 300, " was", "length", -0.1, top, "", (30, 2, 0))]

    response = await post(AsyncClient(), "In the beginning", probabilities="on")

    page = Page(response.content.decode())
    assert page.table("token-table") == [["was", "0.905", "was 0.905; is 0.082", "30", "2", "0"]]
    assert played.samplings[0]["logprobs"] == 5
    assert played.samplings[0]["places"] is True


async def test_with_javascript_tokens_are_streamed_one_by_one(played: PlayedBackbone) -> None:
    played.script = lambda job: [
        StreamedToken(1, 0, 300, " was", "", -0.1, ((300, " was", -0.1),)),
        StreamedToken(1, 1, 2, "", "stop", -0.2, ()),
    ]

    response = await post(AsyncClient(), "In", accept="text/event-stream", probabilities="on")

    assert response["Content-Type"] == "text/event-stream"
    body = await body_of(response)
    tokens = [token for event in events_of(body) for choice in event["choices"] for token in choice["tokens"]]
    assert [(token["text"], token["probability"]) for token in tokens] == [(" was", 0.9048)]
    assert tokens[0]["alternatives"] == [[" was", 0.9048]]
    assert body.endswith("data: [DONE]\n\n")


async def test_a_conversation_goes_on_without_javascript(played: PlayedBackbone) -> None:
    client = AsyncClient()
    played.script = lambda job: text_tokens("I am well.")

    first = Page((await post(client, "How are you?", mode="chat")).content.decode())
    history = first.value("history")
    second = Page((await post(client, "Good.", mode="chat", history=history)).content.decode())

    assert "How are you?" in second.text_of("conversation")
    assert "I am well." in second.text_of("conversation")
    assert [message["content"] for message in json.loads(second.value("history"))] == [
        "How are you?", "I am well.", "Good.", "I am well.",
    ]  # fmt: skip


@pytest.mark.parametrize("history", ["{}", "[1]", '[{"role": "system", "content": "x"}]', "[" * 5000, "x" * 50_000])
async def test_a_conversation_that_is_not_of_this_page_is_refused(played: PlayedBackbone, history: str) -> None:
    response = await post(AsyncClient(), "Hello", mode="chat", history=history)

    assert response.status_code == 400
    assert "'history'" in Page(response.content.decode()).text_of("problem")


async def test_the_parameters_of_the_form_reach_the_engine(played: PlayedBackbone) -> None:
    await post(AsyncClient(), "In", temperature="0.1", top_k="5", seed="7", stop="END", max_tokens="3")

    sampling = played.samplings[0]
    assert sampling["temperature"] == 0.1
    assert sampling["top_k"] == 5
    assert sampling["seed"] == 7
    assert sampling["stop"] == ["END"]
    assert sampling["max_tokens"] == 3


async def test_a_parameter_that_is_no_number_is_refused_by_its_name(played: PlayedBackbone) -> None:
    response = await post(AsyncClient(), "In", temperature="warm")

    page = Page(response.content.decode())
    assert response.status_code == 400
    assert "'temperature'" in page.text_of("problem")
    assert page.attribute("temperature", "value") == "warm"


@pytest.mark.parametrize("prompt", ["", "   ", "x" * 4001, "word " * 390])
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


async def test_a_server_without_backbone_says_so_on_the_page(played: PlayedBackbone) -> None:
    played.client.flushall()

    response = await post(AsyncClient(), "In the beginning")

    assert response.status_code == 503
    page = Page(response.content.decode())
    assert "No backbone is running" in page.text_of("problem")
    assert page.text_of("prompt") == "In the beginning"


async def test_an_address_has_so_many_prompts_per_minute(played: PlayedBackbone, settings: Settings) -> None:
    settings.DEMO_REQUESTS_PER_MINUTE = 2
    client = AsyncClient()

    statuses = [(await post(client, "In")).status_code for _ in range(3)]

    assert statuses == [200, 200, 429]


async def test_an_address_may_ask_for_so_many_tokens_per_hour(played: PlayedBackbone, settings: Settings) -> None:
    settings.DEMO_TOKENS_PER_HOUR = 100
    client = AsyncClient()

    long, again = [await post(client, "In", max_tokens="60") for _ in range(2)]
    shorter = await post(client, "In", max_tokens="40")

    assert [response.status_code for response in (long, again, shorter)] == [200, 429, 200]
    assert "40 are left" in Page(again.content.decode()).text_of("problem")


async def test_a_prompt_that_finds_no_place_costs_no_tokens(played: PlayedBackbone, settings: Settings) -> None:
    settings.DEMO_TOKENS_PER_HOUR, settings.API_QUEUE_LENGTH = 60, 0
    client = AsyncClient()

    refused = await post(client, "In", max_tokens="60")
    settings.API_QUEUE_LENGTH = 1
    accepted = await post(client, "In", max_tokens="60")

    assert [response.status_code for response in (refused, accepted)] == [429, 200]


def test_staff_asks_without_limit(played: PlayedBackbone, settings: Settings, client: Client) -> None:
    settings.DEMO_REQUESTS_PER_MINUTE = settings.DEMO_TOKENS_PER_HOUR = 1
    client.force_login(User.objects.create_user("alice", is_staff=True))

    statuses = [client.post("/try", {"prompt": "In"}).status_code for _ in range(3)]

    assert statuses == [200, 200, 200]


async def test_the_box_needs_the_token_that_the_page_carries(played: PlayedBackbone) -> None:
    response = await post(AsyncClient(enforce_csrf_checks=True), "In the beginning")

    assert response.status_code == 403
    assert played.queued == []


@pytest.mark.parametrize(
    ("public", "demo", "debug", "offered"),
    [(False, False, False, True), (True, False, False, False), (True, True, False, True), (True, False, True, True)],
)
async def test_strangers_get_the_box_only_when_the_operator_wants_it(
    played: PlayedBackbone, settings: Settings, monkeypatch: pytest.MonkeyPatch,
    public: bool, demo: bool, debug: bool, offered: bool,
) -> None:  # fmt: skip
    settings.DEMO_PROMPT, settings.DEBUG = demo, debug
    monkeypatch.setattr(views, "is_public", lambda values: public)
    client = AsyncClient()

    page = await client.get("/")
    answer = await post(client, "In the beginning")

    assert Page(page.content.decode()).has_id("prompt-form") is offered
    assert answer.status_code == (200 if offered else 403)
    assert bool(played.queued) is offered


def test_the_page_speaks_chinese_to_who_asks_for_it(client: Client, played: PlayedBackbone) -> None:
    by_header = client.get("/", headers={"accept-language": "zh-CN,zh;q=0.9"})
    chosen = client.get("/language/zh-hans?next=/status", follow=True)
    foreign = client.get("/language/zh-hans?next=https://evil.example/")

    assert '<html lang="zh-hans">' in by_header.content.decode()
    assert chosen.redirect_chain == [("/status", 302)]
    assert '<html lang="zh-hans">' in chosen.content.decode()
    assert foreign["Location"] == "/"
    assert client.get("/language/xx").status_code == 404
