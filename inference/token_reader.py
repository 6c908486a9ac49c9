"""Reads the token streams of many generations for one event loop, through one connection to Redis.

A reader per generation would cost a round trip per token; here one XREAD waits on all streams at once and brings what
a decode step wrote for every sequence. Readers may come late or come back: they say which index they want next.
"""

import asyncio
import logging
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from weakref import WeakKeyDictionary

import redis.asyncio
from redis import RedisError

from inference.token_stream import FreshTokens, StreamedToken, stream_key, unpack
from relay.outage import Outage

logger = logging.getLogger(__name__)

# Longest wait inside one XREAD; bounds how long the connection outlives its last reader.
BLOCK_SECONDS = 1.0
# A Redis that has said nothing for so long, although an XREAD ended, is asked anew.
SILENCE_SECONDS = BLOCK_SECONDS + 2.0
RETRY_SECONDS = 0.5
WAKE_KEPT_SECONDS = 60
BEGINNING = "0-0"


@dataclass
class _Stream:
    """One followed generation. has_beginning: whatever came before the next delivery has been delivered."""

    number: int
    fresh: FreshTokens
    has_beginning: bool = False


class Following:
    """The new tokens of some generations from `next_index` on. An async context manager, used once, by one task."""

    def __init__(self, reader: "TokenReader", generation_ids: Sequence[str], next_index: int) -> None:
        self._reader = reader
        self._streams = {
            stream_key(generation): _Stream(number, FreshTokens(next_index))
            for number, generation in enumerate(generation_ids)
        }
        self._arrived = asyncio.Event()
        self._buffer: list[tuple[int, StreamedToken]] = []

    @property
    def keys(self) -> Iterable[str]:
        return self._streams

    async def __aenter__(self) -> Self:
        await self._reader.add(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reader.remove(self)

    async def take(self, timeout_seconds: float) -> list[tuple[int, StreamedToken]]:
        """Everything that has arrived as (number of the generation, token), each generation's tokens in order.

        Waits for at least one, or returns [] after the timeout.
        """
        if not self._buffer:
            self._arrived.clear()
            try:
                async with asyncio.timeout(timeout_seconds):
                    await self._arrived.wait()
            except TimeoutError:
                return []
        taken, self._buffer = self._buffer, []
        return taken

    def deliver(self, key: str, tokens: Iterable[StreamedToken], *, from_beginning: bool) -> None:
        """Called by the reader. Entries read from the middle are ignored until those before them have come."""
        stream = self._streams[key]
        stream.has_beginning |= from_beginning
        if stream.has_beginning:
            self._buffer += [(stream.number, token) for token in tokens if stream.fresh.admit(token)]
        if self._buffer:
            self._arrived.set()


class TokenReader:
    """The followers of one event loop. Its task and connection live while somebody follows, and BLOCK_SECONDS more."""

    def __init__(self, redis_url: str) -> None:
        self._url = redis_url
        self._outage = Outage(logger, "Redis, where tokens are read,")
        self._followers: dict[str, list[Following]] = {}
        self._positions: dict[str, str] = {}
        self._wake_key = f"token-reader:{secrets.token_hex(8)}"
        self._wake_position = BEGINNING
        self._client: redis.asyncio.Redis | None = None
        self._task: asyncio.Task[None] | None = None
        # The loop holds tasks weakly, and the last one may still be closing its connection when the next one starts.
        self._tasks: set[asyncio.Task[None]] = set()

    def follow(self, *generation_ids: str, next_index: int = 0) -> Following:
        """The generations' tokens from `next_index` on, stored ones first."""
        return Following(self, generation_ids, next_index)

    async def add(self, following: Following) -> None:
        for key in following.keys:
            self._followers.setdefault(key, []).append(following)
            # A second follower of a stream reads it from the start again; the first one drops what it has seen.
            self._positions[key] = BEGINNING
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="token-reader")
            self._tasks.add(self._task)
            self._task.add_done_callback(self._tasks.discard)
        elif self._client is not None:
            await self._wake(self._client)

    def remove(self, following: Following) -> None:
        for key in following.keys:
            followers = self._followers[key]
            followers.remove(following)
            if not followers:
                del self._followers[key], self._positions[key]

    async def _wake(self, client: "redis.asyncio.Redis") -> None:
        """Ends the XREAD that waits without the new stream: it also waits on a stream of our own."""
        try:
            async with client.pipeline(transaction=False) as pipeline:
                pipeline.xadd(self._wake_key, {"": ""}, maxlen=1, approximate=False)
                pipeline.expire(self._wake_key, WAKE_KEPT_SECONDS)
                await pipeline.execute()
        except RedisError as error:
            # The next XREAD has the new stream; this one ends within BLOCK_SECONDS.
            self._outage.failed(error)

    async def _run(self) -> None:
        client = self._client = redis.asyncio.Redis.from_url(
            self._url, socket_timeout=SILENCE_SECONDS, socket_connect_timeout=SILENCE_SECONDS
        )
        try:
            while self._followers:
                await self._step(client)
        finally:
            # Before any await: whoever follows from here on starts a task of their own.
            self._task = self._client = None
            await client.aclose()

    async def _step(self, client: "redis.asyncio.Redis") -> None:
        streams: Any = {self._wake_key: self._wake_position, **self._positions}
        try:
            answer: Any = await client.xread(streams, block=int(BLOCK_SECONDS * 1000))
        except RedisError as error:
            self._outage.failed(error)
            await asyncio.sleep(RETRY_SECONDS)
            return
        self._outage.answered()
        for key, entries in _entries_by_key(answer):
            if key == self._wake_key:
                self._wake_position = entries[-1][0].decode()
            elif key in self._followers:
                self._deliver(key, streams[key], entries)

    def _deliver(self, key: str, read_from: str, entries: list[tuple[bytes, dict[bytes, bytes]]]) -> None:
        tokens = [token for _, fields in entries for token in unpack(fields)]
        for following in self._followers[key]:
            following.deliver(key, tokens, from_beginning=read_from == BEGINNING)
        if self._positions[key] == read_from:  # else somebody joined meanwhile and wants the beginning
            self._positions[key] = entries[-1][0].decode()


def _entries_by_key(answer: Any) -> list[tuple[str, list[tuple[bytes, dict[bytes, bytes]]]]]:
    """XREAD's answer: a list of [key, entries] (RESP2) or a dict of key to [entries] (RESP3)."""
    if isinstance(answer, dict):
        return [(key.decode(), entries) for key, batches in answer.items() for entries in batches]
    return [(key.decode(), entries) for key, entries in answer or []]


_readers: "WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, TokenReader]]" = WeakKeyDictionary()


def token_reader(redis_url: str) -> TokenReader:
    """The reader of the running event loop for this Redis."""
    readers = _readers.setdefault(asyncio.get_running_loop(), {})
    return readers.setdefault(redis_url, TokenReader(redis_url))
