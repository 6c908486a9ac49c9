"""What an address may ask for: counted by home network, forgotten by the hour, never stored as an address."""

import pytest
from pytest_django import Settings

from frontend.playground import quota
from frontend.playground.quota import asker, charge
from inference.openai.errors import ApiError


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("unix:", "unix:", True),
    ],
)
def test_a_home_counts_as_one(one: str, other: str, same: bool) -> None:
    assert (asker(one, "salt") == asker(other, "salt")) is same


def test_the_digest_tells_no_address_and_depends_on_its_use() -> None:
    digest = asker("192.0.2.1", "salt")

    assert "192" not in digest
    assert digest != asker("192.0.2.1", "other")


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
