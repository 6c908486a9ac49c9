"""Clients of the API that hang up, and readers that come back: what is cancelled, what goes on, what can be read."""

import asyncio
import json
import uuid
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.core.asgi import get_asgi_application
from django.test import AsyncClient

from inference import api_keys
from inference.openai import submission
from tests.inference.openai.answers_read import body_of, data_of, error_of
from tests.inference.openai.conftest import Post
from tests.inference.openai.played_backbone import PlayedBackbone, text_tokens


class Caller:
    """A client of the ASGI application itself, which can hang up."""

    def __init__(self, key: str, path: str, body: dict[str, Any]) -> None:
        self._body = json.dumps({"model": "qwen35moe-demo", **body}).encode()
        headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {key}".encode())]
        scope = {
            "type": "http", "method": "POST", "path": path, "query_string": b"", "headers": headers,
            "http_version": "1.1", "scheme": "http", "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 5),
        }  # fmt: skip
        communicator: Any = ApplicationCommunicator
        self._call = communicator(get_asgi_application(), scope)

    async def send(self) -> None:
        await self._call.send_input({"type": "http.request", "body": self._body})

    async def receive(self) -> dict[str, Any]:
        message: dict[str, Any] = await self._call.receive_output(5.0)
        return message

    async def hang_up(self) -> None:
        await self._call.send_input({"type": "http.disconnect"})
        await self._call.wait(5.0)


async def until(condition: Any) -> None:
    async with asyncio.timeout(5.0):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_client_that_hangs_up_cancels_its_streamed_answer(backbone: PlayedBackbone, key: str) -> None:
    backbone.script = lambda job: text_tokens("Once", finish="")
    caller = Caller(key, "/v1/completions", {"prompt": "In", "stream": True})
    await caller.send()
    assert (await caller.receive())["status"] == 200
    assert b"Once" in (await caller.receive())["body"]
    assert not backbone.is_cancelled(backbone.queued[0])

    await caller.hang_up()

    assert backbone.is_cancelled(backbone.queued[0])


async def test_a_client_that_hangs_up_cancels_every_answer_it_waits_for(backbone: PlayedBackbone, key: str) -> None:
    backbone.script = lambda job: []
    caller = Caller(key, "/v1/completions", {"prompt": "In", "n": 2})
    await caller.send()
    await until(lambda: len(backbone.queued) == 2)
    await asyncio.sleep(0.05)

    await caller.hang_up()

    assert all(backbone.is_cancelled(job) for job in backbone.queued)


async def test_what_is_queued_while_the_client_hangs_up_is_cancelled_too(
    backbone: PlayedBackbone, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrived, may_go_on = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def slowly(job_id: str, priority: int) -> None:
        loop.call_soon_threadsafe(arrived.set)
        asyncio.run_coroutine_threadsafe(may_go_on.wait(), loop).result(5.0)
        backbone.enqueue(job_id, priority)

    backbone.script = lambda job: []
    monkeypatch.setattr(submission, "enqueue", slowly)
    caller = Caller(key, "/v1/completions", {"prompt": "In"})
    await caller.send()
    await arrived.wait()

    hanging_up = asyncio.create_task(caller.hang_up())
    await asyncio.sleep(0.05)
    may_go_on.set()
    await hanging_up

    await until(lambda: backbone.queued and backbone.is_cancelled(backbone.queued[0]))
    assert len(backbone.queued) == 1


async def test_a_background_answer_outlives_its_reader_who_comes_back(backbone: PlayedBackbone, key: str) -> None:
    backbone.script = lambda job: text_tokens("Once", " upon", finish="")
    caller = Caller(key, "/v1/completions", {"prompt": "In", "stream": True, "background": True})
    await caller.send()
    await caller.receive()
    last_id = (await caller.receive())["body"].decode().splitlines()[0].removeprefix("id: ")
    await caller.hang_up()
    generation, _, index = last_id.partition(":")
    assert not backbone.is_cancelled(generation)

    await sync_to_async(backbone.write)(generation, text_tokens(" a", " time", start=2))
    client, headers = AsyncClient(), {"authorization": f"Bearer {key}"}
    resumed = await client.get(f"/v1/generations/{generation}/stream?after={index}", headers=headers)
    by_header = await client.get(
        f"/v1/generations/{generation}/stream", headers={**headers, "last-event-id": f"{generation}:0"}
    )

    *tokens, end = data_of(await body_of(resumed))
    assert [(token["index"], token["text"]) for token in tokens] == [(2, " a"), (3, " time")]
    assert tokens[-1]["finish_reason"] == "stop"
    assert end == "[DONE]"
    assert [token["index"] for token in data_of(await body_of(by_header))[:-1]] == [1, 2, 3]


async def test_a_reader_that_missed_only_the_end_gets_no_text_twice(
    post: Post, backbone: PlayedBackbone, key: str
) -> None:
    await post("/v1/completions", prompt="In")
    client, headers = AsyncClient(), {"authorization": f"Bearer {key}"}

    response = await client.get(f"/v1/generations/{backbone.queued[0]}/stream?after=1", headers=headers)

    (token, end) = data_of(await body_of(response))
    assert (token["index"], token["text"], token["finish_reason"], end) == (1, "", "stop", "[DONE]")


async def test_a_generation_is_shown_and_cancelled_by_its_own_key_only(
    post: Post, backbone: PlayedBackbone, key: str
) -> None:
    backbone.script = lambda job: text_tokens("Once", finish="")
    response = await post("/v1/completions", prompt="In", stream=True, background=True)
    client, path = AsyncClient(), f"/v1/generations/{backbone.queued[0]}"
    _, stranger = await sync_to_async(api_keys.create_key)("Mallory")
    own, other = ({"authorization": f"Bearer {text}"} for text in (key, stranger))

    for call in (client.get, client.delete):
        assert error_of(await call(path, headers=other)) == (404, "generation_not_found", "id")
    assert error_of(await client.get(f"{path}/stream", headers=other)) == (404, "generation_not_found", "id")
    shown = (await client.get(path, headers=own)).json()
    await client.delete(path, headers=own)
    response.close()

    assert (shown["state"], shown["prompt_tokens"], shown["finish_reason"]) == ("running", 1, None)
    assert backbone.is_cancelled(backbone.queued[0])


@pytest.mark.parametrize("name", [str(uuid.uuid4()), "x", "%00", "é"])
async def test_a_generation_that_never_was_is_not_found(backbone: PlayedBackbone, key: str, name: str) -> None:
    response = await AsyncClient().get(f"/v1/generations/{name}/stream", headers={"authorization": f"Bearer {key}"})

    assert error_of(response) == (404, "generation_not_found", "id")


async def test_tokens_that_have_expired_are_gone(post: Post, backbone: PlayedBackbone, key: str) -> None:
    await post("/v1/completions", prompt="In")
    backbone.client.flushall()

    headers = {"authorization": f"Bearer {key}"}
    response = await AsyncClient().get(f"/v1/generations/{backbone.queued[0]}/stream", headers=headers)

    assert error_of(response) == (410, "generation_gone", "id")


@pytest.mark.parametrize("after", ["x", "-2", "99999999999"])
async def test_an_index_to_resume_at_must_be_one(post: Post, backbone: PlayedBackbone, key: str, after: str) -> None:
    await post("/v1/completions", prompt="In")

    headers = {"authorization": f"Bearer {key}"}
    response = await AsyncClient().get(f"/v1/generations/{backbone.queued[0]}/stream?after={after}", headers=headers)

    assert error_of(response) == (400, "invalid_value", "after")
