"""Waiting."""

import asyncio
from typing import Any

import pytest

from inference.worker.errors import WorkerError
from inference.worker.market_client import MarketClient
from inference.worker.pacing import KeepAlive, unless
from tests.inference.worker.market_server import market


async def test_work_ends_when_the_stop_comes() -> None:
    stop = asyncio.Event()
    cancelled = asyncio.Event()

    async def forever() -> Any:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    asyncio.get_running_loop().call_later(0.01, stop.set)
    result = await unless(stop, forever())

    assert result is None
    assert cancelled.is_set()


async def test_trouble_in_the_work_is_raised() -> None:
    async def fails() -> None:
        raise WorkerError("no")

    with pytest.raises(WorkerError):
        await unless(asyncio.Event(), fails())


async def test_the_result_of_work_that_ends_is_returned() -> None:
    assert await unless(asyncio.Event(), asyncio.sleep(0, 7)) == 7


async def test_heartbeats_go_on_while_something_takes_long_whatever_they_meet() -> None:
    with market(
        (200, {"claims": [], "lease_seconds": 120}), (400, {}), (200, {"claims": [], "lease_seconds": 120})
    ) as town:
        async with MarketClient(town.url, "t1") as client, KeepAlive(client, 0.02):
            async with asyncio.timeout(10):
                while len(town.asked) < 4:
                    await asyncio.sleep(0.01)
        stopped = len(town.asked)
        await asyncio.sleep(0.1)

    assert len(town.asked) == stopped
    assert {asked.path for asked in town.asked} == {"/api/heartbeat"}
