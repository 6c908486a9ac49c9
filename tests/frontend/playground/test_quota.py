"""frontend/playground/quota.py: what an address may ask for, forgotten by the hour."""

import pytest
from pytest_django import Settings

from frontend.playground import quota
from frontend.playground.quota import charge
from inference.openai.errors import ApiError


def test_the_next_hour_begins_anew(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.DEMO_TOKENS_PER_HOUR = 100
    now = 7 * quota.HOUR_SECONDS
    monkeypatch.setattr("time.time", lambda: now)
    charge("192.0.2.1", 100)

    with pytest.raises(ApiError, match="0 are left") as refusal:
        charge("192.0.2.1", 1)
    now += quota.HOUR_SECONDS
    charge("192.0.2.1", 100)

    assert refusal.value.retry_after_seconds == quota.HOUR_SECONDS
