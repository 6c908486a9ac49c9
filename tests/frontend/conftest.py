"""Fixtures of the page tests: an empty cache, a played backbone on a real Redis."""

from collections.abc import Iterator

import pytest
import redis
from django.core.cache import cache
from django.utils import translation
from pytest_django import Settings

from frontend.playground import views as playground_views
from inference import backbone_status
from inference.openai import submission
from tests.inference.openai.played_backbone import PlayedBackbone
from tests.inference.statuses import backbone as status_of_backbone


@pytest.fixture(autouse=True)
def _empty_cache() -> None:
    """Figures and rate limits live in the cache; no test sees another one's."""
    cache.clear()


@pytest.fixture(autouse=True)
def _language_of_nobody() -> Iterator[None]:
    """A request in another language leaves it to its thread; the next request chooses its own, the next test none."""
    yield
    translation.deactivate()


@pytest.fixture(autouse=True)
def _only_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Django's test runner adds its own host name, and a server that answers to it counts as public."""
    monkeypatch.setattr(playground_views, "is_public", lambda values: False)


@pytest.fixture
def swarm(redis_database: str, settings: Settings) -> Iterator["redis.Redis"]:
    """A living backbone in Redis, as the figures see it."""
    settings.REDIS_URL = redis_database
    with redis.Redis.from_url(redis_database) as client:
        backbone_status.publish(client, "b1", status_of_backbone())
        yield client


@pytest.fixture
def played(
    redis_database: str, settings: Settings, monkeypatch: pytest.MonkeyPatch, transactional_db: None
) -> Iterator[PlayedBackbone]:
    """A backbone whose answer to everything is " was the word", and whose status has every figure."""
    settings.REDIS_URL = redis_database
    backbone = PlayedBackbone(redis_database)
    backbone.leave()
    backbone_status.publish(backbone.client, "b1", status_of_backbone())
    monkeypatch.setattr(submission, "enqueue", backbone.enqueue)
    yield backbone
    backbone.close()
    submission._redis.cache_clear()


@pytest.fixture
def no_redis(settings: Settings) -> None:
    """Redis is configured and does not answer."""
    settings.REDIS_URL = "unix:///nowhere/redis.sock"
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": settings.REDIS_URL}
    }
