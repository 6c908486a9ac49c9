"""Fixtures of the market's tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.cache import cache
from django.test import Client
from pytest_django import Settings


@pytest.fixture(autouse=True)
def _empty_cache() -> Iterator[None]:
    """Presence and rate limits live in the cache; no test sees another one's."""
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def client(settings: Settings, tmp_path: Path) -> Client:
    """Django's client; WhiteNoise warns when the folder of collected files does not exist."""
    settings.STATIC_ROOT = tmp_path
    return Client(raise_request_exception=False)
