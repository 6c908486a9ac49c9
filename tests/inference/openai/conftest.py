"""Fixtures of the API tests: a played backbone on a real Redis, a key, an asynchronous client."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from django.core.cache import cache
from django.test import AsyncClient
from pytest_django import Settings

from inference import api_keys
from inference.openai import submission
from tests.inference.openai.played_backbone import PlayedBackbone

Post = Callable[..., Awaitable[Any]]


@pytest.fixture
def backbone(
    redis_database: str, settings: Settings, monkeypatch: pytest.MonkeyPatch, transactional_db: None
) -> Iterator[PlayedBackbone]:
    """A living backbone whose answer to everything is "Hello world" until a test says otherwise."""
    settings.REDIS_URL = redis_database
    cache.clear()
    played = PlayedBackbone(redis_database)
    monkeypatch.setattr(submission, "enqueue", played.enqueue)
    yield played
    played.close()
    submission._redis.cache_clear()


@pytest.fixture
def key(transactional_db: None) -> str:
    return api_keys.create_key("Alice")[1]


@pytest.fixture
def post(backbone: PlayedBackbone, key: str) -> Post:
    """Posts JSON as Alice: `await post("/v1/completions", prompt="Hi")`; the model is filled in."""
    client = AsyncClient()

    async def send(path: str, **body: Any) -> Any:
        return await client.post(
            path,
            {"model": "qwen35moe-demo", **body},
            content_type="application/json",
            headers={"authorization": f"Bearer {key}"},
        )

    return send
