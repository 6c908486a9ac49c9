"""Fixtures of the tests that talk to the relay's consumer."""

from collections.abc import AsyncIterator

import pytest

from relay.connection import Timing
from relay.consumers import RelayConsumer
from relay.roster import Roster
from tests.relay.builders import FakeMarket
from tests.relay.consumer_client import Client, Dial


@pytest.fixture
def market() -> FakeMarket:
    return FakeMarket()


@pytest.fixture
def roster() -> Roster:
    return Roster()


@pytest.fixture
async def dial(market: FakeMarket, roster: Roster) -> AsyncIterator[Dial]:
    clients: list[Client] = []

    def new(ping_seconds: float = 5.0, recheck_seconds: float = 5.0, hello_seconds: float = 5.0) -> Client:
        timing = Timing(ping_seconds, recheck_seconds, hello_seconds)
        clients.append(Client(RelayConsumer.as_asgi(roster=roster, authenticator=market, timing=timing)))
        return clients[-1]

    yield new
    for client in clients:
        await client.leave()
