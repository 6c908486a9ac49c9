"""inference/openai/views.py: the API as a client meets it, with the backbone played over a real Redis."""

from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import OperationalError as OperationalDatabaseError
from django.test import AsyncClient
from kombu.exceptions import OperationalError
from pytest_django import Settings

from inference import api_keys
from inference.models import GenerationJob
from inference.openai import events, submission
from inference.token_stream import StreamedToken
from tests.inference.openai.answers_read import body_of, data_of, error_of
from tests.inference.openai.conftest import Post
from tests.inference.openai.played_backbone import PlayedBackbone, text_tokens

HI = [{"role": "user", "content": "Hi"}]


# --- answers ----------------------------------------------------------------------------------------------------------
async def test_a_completion_is_answered_whole(post: Post, backbone: PlayedBackbone) -> None:
    response = await post("/v1/completions", prompt="In the beginning")

    answer = response.json()
    assert answer["object"] == "text_completion"
    assert answer["choices"][0]["text"] == "Hello world"
    assert answer["usage"] == {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    assert answer["id"] == f"cmpl-{backbone.queued[0]}"
    assert response["X-Generation-Ids"] == backbone.queued[0]


async def test_a_chat_is_asked_in_the_models_own_template(post: Post, backbone: PlayedBackbone) -> None:
    response = await post("/v1/chat/completions", messages=HI)

    answer = response.json()
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"]["content"] == "Hello world"
    model = submission.served_model()
    assert backbone.prompts[0] == model.tokens("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")


async def test_a_streamed_completion_comes_in_events_and_ends_with_done(post: Post) -> None:
    response = await post("/v1/completions", prompt="In", stream=True)

    assert response["Content-Type"] == "text/event-stream"
    assert response["Cache-Control"] == "no-cache"
    *chunks, end = data_of(await body_of(response))
    assert end == "[DONE]"
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "Hello world"
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert all("usage" not in chunk for chunk in chunks)


async def test_usage_is_the_last_chunk_when_asked_for(post: Post) -> None:
    response = await post("/v1/chat/completions", messages=HI, stream=True, stream_options={"include_usage": True})

    *chunks, last, end = data_of(await body_of(response))
    assert end == "[DONE]"
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 2
    assert all(chunk["usage"] is None for chunk in chunks)
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"


async def test_every_prompt_gets_n_choices_each_with_its_own_seed(post: Post, backbone: PlayedBackbone) -> None:
    backbone.script = lambda job: text_tokens(f"{len(job.prompt_tokens)}/{job.sampling['seed']}")

    response = await post("/v1/completions", prompt=["In", [5, 6]], n=2, seed=40)

    choices = response.json()["choices"]
    assert [(choice["index"], choice["text"]) for choice in choices] == [
        (0, "1/40"), (1, "1/41"), (2, "2/40"), (3, "2/41"),
    ]  # fmt: skip
    assert response.json()["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


async def test_streamed_choices_are_told_apart_by_their_index(post: Post, backbone: PlayedBackbone) -> None:
    response = await post("/v1/completions", prompt="In", n=3, stream=True)

    *chunks, _ = data_of(await body_of(response))
    texts = ["", "", ""]
    for chunk in chunks:
        (choice,) = chunk["choices"]
        texts[choice["index"]] += choice["text"]
    assert texts == ["Hello world"] * 3


async def test_logprobs_come_in_both_shapes(post: Post, backbone: PlayedBackbone) -> None:
    token = submission.served_model().tokens("the")[0]
    backbone.script = lambda job: [
        StreamedToken(1, 0, token, "the", "length", logprob=-0.5, top=((token, "the", -0.5),))
    ]

    completion = (await post("/v1/completions", prompt="In", logprobs=1)).json()
    chat = (await post("/v1/chat/completions", messages=HI, logprobs=True, top_logprobs=1)).json()

    assert completion["choices"][0]["logprobs"]["top_logprobs"] == [{"the": -0.5}]
    assert chat["choices"][0]["logprobs"]["content"][0]["token"] == "the"
    assert completion["choices"][0]["finish_reason"] == "length"


async def test_a_generation_that_fails_is_an_error_whole_or_streamed(post: Post, backbone: PlayedBackbone) -> None:
    backbone.script = lambda job: [
        StreamedToken(1, 0, 5, "Hel"), StreamedToken(1, 1, -1, "", "error", error="context_not_made: no memory"),
    ]  # fmt: skip

    whole = await post("/v1/completions", prompt="In")
    streamed = data_of(await body_of(await post("/v1/completions", prompt="In", stream=True)))

    assert error_of(whole) == (500, "generation_failed", None)
    assert streamed[-1]["error"]["code"] == "generation_failed"


async def test_a_prompt_that_only_the_backbone_finds_too_long_is_the_callers_error(
    post: Post, backbone: PlayedBackbone
) -> None:
    backbone.script = lambda job: [StreamedToken(1, 0, -1, "", "error", error="prompt_too_long: at most 5 fit")]

    assert error_of(await post("/v1/completions", prompt="In")) == (400, "context_length_exceeded", "prompt")


async def test_a_waiting_reader_hears_comments_and_then_the_answer(
    post: Post, backbone: PlayedBackbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "KEEP_ALIVE_SECONDS", 0.05)
    backbone.script = lambda job: []

    response = await post("/v1/completions", prompt="In", stream=True)
    chunks = aiter(response.streaming_content)
    first = await anext(chunks)
    await sync_to_async(backbone.write)(backbone.queued[0], text_tokens("late"))
    rest = b"".join([chunk async for chunk in chunks])

    assert first == b": waiting\n\n"
    assert data_of(rest)[0]["choices"][0]["text"] == "late"


async def test_an_answer_without_progress_is_given_up_and_cancelled(
    post: Post, backbone: PlayedBackbone, settings: Settings
) -> None:
    settings.API_PATIENCE_SECONDS = 0.1
    backbone.script = lambda job: []

    whole = await post("/v1/completions", prompt="In")
    streamed = data_of(await body_of(await post("/v1/completions", prompt="In", stream=True)))

    assert error_of(whole) == (504, "generation_timeout", None)
    assert streamed[-1]["error"]["code"] == "generation_timeout"
    assert all(backbone.is_cancelled(job) for job in backbone.queued)


# --- models -----------------------------------------------------------------------------------------------------------
async def test_models_lists_the_served_one(backbone: PlayedBackbone, key: str) -> None:
    client, headers = AsyncClient(), {"authorization": f"Bearer {key}"}

    listed = (await client.get("/v1/models", headers=headers)).json()
    one = (await client.get("/v1/models/qwen35moe-demo", headers=headers)).json()
    other = await client.get("/v1/models/gpt-5", headers=headers)

    assert listed == {"object": "list", "data": [one]}
    assert (one["id"], one["object"], one["owned_by"]) == ("qwen35moe-demo", "model", "expertswarm")
    assert error_of(other) == (404, "model_not_found", "model")


# --- refusals ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("fields", "status", "code", "param"),
    [
        ({"model": "gpt-5", "prompt": "In"}, 404, "model_not_found", "model"),
        ({"prompt": "In", "temperature": 3}, 400, "invalid_value", "temperature"),
        ({"prompt": "word " * 2000}, 400, "context_length_exceeded", "prompt"),
        ({"prompt": [1] * 1024}, 400, "context_length_exceeded", "prompt"),
        ({"prompt": [4096]}, 400, "invalid_value", "prompt"),
        ({"prompt": ""}, 400, "invalid_value", "prompt"),
        ({"prompt": "In", "best": 1}, 400, "unknown_parameter", "best"),
    ],
)
async def test_a_wrong_request_is_refused_before_anything_is_queued(
    post: Post, backbone: PlayedBackbone, fields: dict[str, Any], status: int, code: str, param: str
) -> None:
    response = await post("/v1/completions", **fields)

    assert error_of(response) == (status, code, param)
    assert backbone.queued == []
    assert await GenerationJob.objects.acount() == 0


async def test_a_conversation_that_is_too_long_is_refused_by_its_own_name(post: Post) -> None:
    response = await post("/v1/chat/completions", messages=[{"role": "user", "content": "word " * 2000}])

    assert error_of(response) == (400, "context_length_exceeded", "messages")


async def test_a_body_that_is_no_json_or_too_big_is_refused(backbone: PlayedBackbone, key: str) -> None:
    client = AsyncClient()

    async def send(body: bytes) -> Any:
        headers = {"authorization": f"Bearer {key}"}
        return await client.post("/v1/completions", body, content_type="application/json", headers=headers)

    assert error_of(await send(b"{")) == (400, "invalid_json", None)
    assert error_of(await send(b"x" * ((1 << 20) + 1))) == (413, "request_too_large", None)


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Basic QTpC", "Bearer sk-es-guess", "sk-es-guess"])
async def test_without_a_valid_key_nothing_is_answered(backbone: PlayedBackbone, header: str | None) -> None:
    client, headers = AsyncClient(), {} if header is None else {"authorization": header}

    posted = await client.post("/v1/completions", {"model": "m"}, content_type="application/json", headers=headers)
    listed = await client.get("/v1/models", headers=headers)

    for response in (posted, listed):
        assert error_of(response)[:2] == (401, "invalid_api_key")
        assert response["WWW-Authenticate"] == "Bearer"


async def test_a_revoked_key_is_refused_at_once(post: Post, key: str) -> None:
    assert (await post("/v1/completions", prompt="In")).status_code == 200

    await sync_to_async(lambda: api_keys.revoke_key(api_keys.list_keys()[0].key_id))()

    assert error_of(await post("/v1/completions", prompt="In")) == (401, "invalid_api_key", None)


async def test_a_key_has_so_many_requests_per_minute(post: Post, settings: Settings) -> None:
    settings.API_REQUESTS_PER_MINUTE = 2

    statuses = [(await post("/v1/completions", prompt="In")).status_code for _ in range(2)]
    refused = await post("/v1/completions", prompt="In")

    assert statuses == [200, 200]
    assert error_of(refused) == (429, "rate_limit_exceeded", None)
    assert 1 <= int(refused["Retry-After"]) <= 60


async def test_a_key_has_so_many_tokens_per_day(post: Post, settings: Settings) -> None:
    settings.API_TOKENS_PER_DAY = 60

    first = await post("/v1/completions", prompt=[1, 2, 3], max_tokens=7, n=5)
    refused = await post("/v1/completions", prompt=[1, 2, 3], max_tokens=20)
    smaller = await post("/v1/completions", prompt=[1, 2, 3], max_tokens=19)

    assert first.status_code == smaller.status_code == 200
    assert error_of(refused) == (429, "rate_limit_exceeded", None)
    assert 1 <= int(refused["Retry-After"]) <= 86_400


async def test_a_request_that_finds_no_place_costs_no_tokens(post: Post, settings: Settings) -> None:
    settings.API_TOKENS_PER_DAY, settings.API_QUEUE_LENGTH = 60, 1

    refused = await post("/v1/completions", prompt=[1, 2, 3], max_tokens=7, n=2)
    accepted = await post("/v1/completions", prompt=[1, 2, 3], max_tokens=57)

    assert error_of(refused) == (429, "queue_full", None)
    assert accepted.status_code == 200


async def test_a_key_has_so_many_open_answers(post: Post, backbone: PlayedBackbone, settings: Settings) -> None:
    settings.API_OPEN_PER_KEY = 2
    backbone.script = lambda job: []
    open_answer = await post("/v1/completions", prompt="In", n=2, stream=True)

    refused = await post("/v1/completions", prompt="In")
    for job in list(backbone.queued):
        await sync_to_async(backbone.write)(job, text_tokens("done"))
    backbone.script = lambda job: text_tokens("again")
    accepted = await post("/v1/completions", prompt="In")
    await body_of(open_answer)

    assert error_of(refused) == (429, "rate_limit_exceeded", None)
    assert int(refused["Retry-After"]) >= 1
    assert accepted.status_code == 200


async def test_a_full_queue_is_told_to_everybody(post: Post, backbone: PlayedBackbone, settings: Settings) -> None:
    settings.API_QUEUE_LENGTH = 3

    refused = await post("/v1/completions", prompt="In", n=4)

    assert error_of(refused) == (429, "queue_full", None)
    assert int(refused["Retry-After"]) >= 1
    assert backbone.queued == []


async def test_without_a_backbone_or_a_store_the_answer_is_503(
    post: Post, backbone: PlayedBackbone, settings: Settings
) -> None:
    backbone.leave()
    alone = await post("/v1/completions", prompt="In")
    settings.REDIS_URL = "unix:///nowhere/redis.sock"
    cut_off = await post("/v1/completions", prompt="In")
    settings.REDIS_URL = ""
    bare = await post("/v1/completions", prompt="In")

    assert error_of(alone) == (503, "no_backbone", None)
    assert alone["Retry-After"]
    assert error_of(cut_off) == (503, "queue_unreachable", None)
    assert error_of(bare) == (503, "queue_unreachable", None)


async def test_a_cache_or_a_database_that_is_away_is_503(
    post: Post, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Any:
        raise OperationalDatabaseError("database is locked")

    monkeypatch.setattr(submission, "_create_jobs", fail)
    locked = await post("/v1/completions", prompt="In")
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "unix:///nowhere/redis.sock"}
    }
    cut_off = await post("/v1/completions", prompt="In")

    assert error_of(locked) == (503, "database_unreachable", None)
    assert error_of(cut_off) == (503, "queue_unreachable", None)
    assert cut_off["Retry-After"]


async def test_a_queue_that_fails_leaves_no_job_behind(
    post: Post, backbone: PlayedBackbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(job_id: str, priority: int) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(submission, "enqueue", fail)

    assert error_of(await post("/v1/completions", prompt="In", n=2)) == (503, "queue_unreachable", None)
    states = [job.state async for job in GenerationJob.objects.all()]
    assert states == ["failed", "failed"]


async def test_a_model_file_that_is_gone_is_503(post: Post, settings: Settings) -> None:
    settings.MODEL_PATH = settings.BASE_DIR / "absent.gguf"

    assert error_of(await post("/v1/completions", prompt="In")) == (503, "model_unavailable", None)


async def test_a_defect_is_an_error_in_the_same_shape(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission, "accept", lambda *_: 1 / 0)

    assert error_of(await post("/v1/completions", prompt="In")) == (500, "internal_error", None)


async def test_wrong_methods_and_addresses_are_errors_in_the_same_shape(backbone: PlayedBackbone) -> None:
    client = AsyncClient()

    assert error_of(await client.get("/v1/completions")) == (405, "method_not_allowed", None)
    assert error_of(await client.get("/v1/embeddings")) == (404, "unknown_url", None)
    assert error_of(await client.post("/v1/")) == (404, "unknown_url", None)
