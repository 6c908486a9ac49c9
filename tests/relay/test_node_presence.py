"""relay/node_presence.py."""

import logging
from time import monotonic

import pytest

from relay.errors import MarketAway
from relay.node_presence import NodePresence
from tests.relay.builders import FakeMarket


async def test_the_market_hears_of_a_device_once_in_a_while_and_only_after_something_came() -> None:
    market = FakeMarket()
    presence = NodePresence(market, "bob", "boot/1")

    await presence.mark_seen(monotonic())
    await presence.mark_seen(monotonic())

    assert market.seen == ["bob"]


async def test_only_the_newest_session_of_a_device_says_that_it_left() -> None:
    market = FakeMarket()
    old, new = NodePresence(market, "bob", "boot/1"), NodePresence(market, "bob", "boot/2")
    await market.take_over("bob", "boot/2")

    await old.mark_left()
    said_by_the_old = list(market.left)
    await new.mark_left()

    assert said_by_the_old == []
    assert market.left == ["bob"]


@pytest.mark.parametrize(("error", "level"), [(MarketAway("no Redis"), logging.DEBUG), (KeyError("x"), logging.ERROR)])
async def test_a_market_that_cannot_be_told_is_no_reason_to_end_a_session(
    error: Exception, level: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    market = FakeMarket()

    async def fail(node_id: str) -> None:
        raise error

    monkeypatch.setattr(market, "mark_seen", fail)
    caplog.set_level(logging.DEBUG, "relay.node_presence")

    await NodePresence(market, "bob", "boot/1").mark_seen(monotonic())

    assert [record.levelno for record in caplog.records if record.name == "relay.node_presence"] == [level]
