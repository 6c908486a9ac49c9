"""Waiting: work that a stop cuts short, and signs of life while something takes long."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from inference.worker.errors import WorkerError
from inference.worker.market_client import MarketClient

Result = TypeVar("Result")

logger = logging.getLogger(__name__)


class KeepAlive:
    """Heartbeats while something takes long; their failures are left to whoever asks next."""

    def __init__(self, market: MarketClient, seconds: float) -> None:
        self._market = market
        self._seconds = seconds

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self._beat())

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._seconds)
            try:
                await self._market.heartbeat()
            except WorkerError as error:
                logger.debug("heartbeat: %s", error)


async def unless(stop: asyncio.Event, work: Coroutine[Any, Any, Result]) -> Result | None:
    """The result of `work`, or None when `stop` came first; `work` is cancelled then."""
    task = asyncio.ensure_future(work)
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([task, stopping], return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        stopping.cancel()
        task.cancel()
        await asyncio.gather(task, stopping, return_exceptions=True)
