"""The official `openai` client against the real server: every call unchanged, also while processes die."""

import asyncio
import itertools
import json
import signal
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types import Completion

from inference.api_client import ApiClient
from tests.e2e.live_server import MODEL, LiveServer, live_server, seconds_until

pytestmark = pytest.mark.e2e

PROMPT = "In the beginning"
CHAT: list[Any] = [{"role": "user", "content": "The whale came up beside the boat."}]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("api"), "--workers", "2", API_OPEN_PER_KEY="40") as running:
        yield running


@pytest.fixture
def client(server: LiveServer) -> Iterator[openai.OpenAI]:
    with server.client() as found:
        yield found


def greedy(client: openai.OpenAI, tokens: int, **options: Any) -> Completion:
    found: Completion = client.completions.create(
        model=MODEL, prompt=PROMPT, max_tokens=tokens, temperature=0, **options
    )
    return found


# --- answers ----------------------------------------------------------------------------------------------------------
def test_the_model_is_listed(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).owned_by == "expertswarm"


def test_a_completion_whole_and_streamed_is_the_same_text(client: openai.OpenAI) -> None:
    whole = greedy(client, 24)
    stream = client.completions.create(
        model=MODEL, prompt=PROMPT, max_tokens=24, temperature=0, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)

    assert whole.choices[0].finish_reason == "length"
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == whole.choices[0].text
    assert whole.usage is not None
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (3, 24)
    assert chunks[-1].usage == whole.usage


def test_a_chat_whole_and_streamed_is_the_same_text(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model=MODEL, messages=CHAT, max_completion_tokens=24, temperature=0)
    stream = client.chat.completions.create(
        model=MODEL, messages=CHAT, max_completion_tokens=24, temperature=0, stream=True
    )
    chunks = list(stream)

    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == whole.choices[0].message.content
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason
    assert whole.usage is not None
    assert whole.usage.prompt_tokens > 10  # the template's marks are tokens too


def test_the_clients_own_stream_helper_works(client: openai.OpenAI) -> None:
    options: Any = {"stop": [".", ",", " the"], "max_tokens": 500, "temperature": 0}
    with client.chat.completions.stream(model=MODEL, messages=CHAT, **options) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()

    assert final.choices[0].message.content


def test_choices_of_one_seed_differ(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=12, n=3, seed=11, temperature=1)

    texts = [choice.text for choice in answer.choices]
    assert len(set(texts)) == 3
    assert all(texts)


def test_a_stop_string_ends_the_answer_before_it(client: openai.OpenAI) -> None:
    text = greedy(client, 40).choices[0].text
    word = text.split()[5]

    stopped = greedy(client, 40, stop=word)

    assert stopped.choices[0].finish_reason == "stop"
    assert stopped.choices[0].text == text[: text.index(word)]


def test_logprobs_come_with_every_token(client: openai.OpenAI) -> None:
    completion = greedy(client, 8, logprobs=2).choices[0]
    chat = client.chat.completions.create(
        model=MODEL, messages=CHAT, max_tokens=8, temperature=0, logprobs=True, top_logprobs=2
    ).choices[0]

    assert completion.logprobs is not None
    assert completion.logprobs.tokens is not None
    assert "".join(completion.logprobs.tokens) == completion.text
    assert len(completion.logprobs.top_logprobs or []) == 8
    assert chat.logprobs is not None
    for entry in chat.logprobs.content or []:
        assert entry.logprob <= 0
        assert entry.token == entry.top_logprobs[0].token  # greedy


# --- refusals ---------------------------------------------------------------------------------------------------------
def test_refusals_are_the_clients_own_exceptions(server: LiveServer, client: openai.OpenAI) -> None:
    stranger = openai.OpenAI(base_url=f"{server.run.url}/v1", api_key="sk-es-guess", max_retries=0)

    with pytest.raises(openai.NotFoundError, match="does not exist"):
        client.completions.create(model="gpt-5", prompt=PROMPT)
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.completions.create(model=MODEL, prompt=PROMPT, temperature=9)
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=MODEL, prompt="word " * 3000)
    assert caught.value.code == "context_length_exceeded"
    with stranger, pytest.raises(openai.AuthenticationError):
        stranger.models.list()


def test_too_many_open_answers_are_a_rate_limit_error_with_a_time(client: openai.OpenAI) -> None:
    open_answer = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=900, n=32, stream=True)

    with pytest.raises(openai.RateLimitError) as caught:
        client.completions.create(model=MODEL, prompt=PROMPT, n=16)

    assert caught.value.code == "rate_limit_exceeded"
    assert int(caught.value.response.headers["Retry-After"]) >= 1
    open_answer.close()


# --- leaving and dying ------------------------------------------------------------------------------------------------
def test_hanging_up_cancels_within_a_step(server: LiveServer, client: openai.OpenAI) -> None:
    seconds_until(lambda: server.stats()["queue"]["running"] == 0, 30.0)
    stream = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=900, stream=True)
    first = list(itertools.islice(stream, 5))
    generation = first[0].id.removeprefix("cmpl-")

    stream.close()

    seconds = seconds_until(lambda: server.generation(generation)["state"] == "done", 5.0)
    ended = server.generation(generation)
    assert ended["finish_reason"] == "cancelled"
    assert ended["completion_tokens"] < 300
    assert seconds < 2.0


def read_events(server: LiveServer, tokens: int) -> Iterator[dict[str, Any]]:
    """The raw events of a greedy stream with log-probabilities, which list every token."""
    body = {"model": MODEL, "prompt": PROMPT, "max_tokens": tokens, "temperature": 0, "logprobs": 0, "stream": True,
            "stream_options": {"include_usage": True}}  # fmt: skip
    headers = {"Authorization": f"Bearer {server.run.api_key}"}
    with server.http.stream("POST", "/v1/completions", json=body, headers=headers, timeout=60.0) as response:
        event_id = ""
        for line in response.iter_lines():
            if line.startswith("id: "):
                event_id = line.removeprefix("id: ")
            elif line.startswith("data: {"):
                yield {**json.loads(line.removeprefix("data: ")), "event_id": event_id}


def test_a_killed_backbone_loses_and_doubles_no_token(server: LiveServer, client: openai.OpenAI) -> None:
    before = server.run.pids["backbone"]
    text, tokens, usage, last_index = "", [], None, -1
    calm = greedy(client, 60).choices[0].text

    for event in read_events(server, 200):
        usage = event["usage"] or usage
        for choice in event["choices"]:
            text += choice["text"]
            tokens += choice["logprobs"]["tokens"]
            index = int(event["event_id"].rpartition(":")[2])
            assert index == len(tokens) - 1  # neither a hole nor a repetition, at any time
            if last_index < 60 <= index:
                server.kill("backbone")
            last_index = index

    assert len(tokens) == 200
    assert "".join(tokens) == text
    assert text.startswith(calm)
    assert usage is not None
    assert usage["completion_tokens"] == 200
    assert server.run.pids["backbone"] != before


def test_a_killed_web_server_costs_a_reader_nothing_that_it_cannot_fetch(server: LiveServer) -> None:
    seconds_until(lambda: server.stats()["engine"]["ready"], 30.0)
    run, shown = server.run, 0

    def on_text(text: str) -> None:
        nonlocal shown
        shown += 1
        if shown == 20:
            server.kill("web")

    body = {"model": MODEL, "prompt": PROMPT, "max_tokens": 300, "temperature": 0}
    with ApiClient(run.url, run.api_key) as reader:
        progress = reader.stream(body, on_text)

    assert progress.resumed >= 1
    assert progress.finish == "length"
    generation, _, last = progress.last_id.rpartition(":")
    assert int(last) == 299
    stored = server.http.get(
        f"/v1/generations/{generation}/stream", headers={"Authorization": f"Bearer {run.api_key}"}
    ).text
    texts = [json.loads(line[6:])["text"] for line in stored.splitlines() if line.startswith("data: {")]
    assert progress.text == "".join(texts)


def test_the_command_streams_and_ctrl_c_cancels(server: LiveServer) -> None:
    seconds_until(lambda: server.stats()["engine"]["ready"], 30.0)
    process = server.manage("generate", PROMPT, "--max-tokens", "900", "--temperature", "0.8")
    assert process.stdout is not None
    begun = process.stdout.read(len(PROMPT) + 20)

    process.send_signal(signal.SIGINT)
    _, problem = process.communicate(timeout=20)

    assert begun.startswith(PROMPT)
    assert process.returncode == 130
    assert "Traceback" not in problem
    seconds_until(lambda: server.stats()["queue"]["running"] == 0, 5.0)


def test_many_clients_at_once_all_get_their_own_answer(server: LiveServer) -> None:
    async def one(client: openai.AsyncOpenAI, number: int) -> tuple[int, str | None]:
        stream = await client.completions.create(
            model=MODEL, prompt=f"{PROMPT} {number}", max_tokens=20 + number, stream=True,
            stream_options={"include_usage": True}, extra_body={"ignore_eos": True},
        )  # fmt: skip
        finish: str | None = None
        count = -1
        async for chunk in stream:
            if chunk.choices:
                finish = chunk.choices[0].finish_reason
            if chunk.usage:
                count = chunk.usage.completion_tokens
        return count, finish

    async def all_of_them() -> list[tuple[int, str | None]]:
        async with openai.AsyncOpenAI(base_url=f"{server.run.url}/v1", api_key=server.run.api_key) as client:
            return await asyncio.gather(*(one(client, number) for number in range(24)))

    answers = asyncio.run(all_of_them())

    assert answers == [(20 + number, "length") for number in range(24)]
