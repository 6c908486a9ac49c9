"""A relay inside the test's process: real `Connection`s behind a WebSocket server that is not an ASGI server.

Bob's end is `ToyWorker`, Dora's `ToyStage`, built on the client that every worker and stage uses.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Any

import numpy as np
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from relay.addresses import RelayAddresses
from relay.client import RelayClient
from relay.connection import Connection, Timing
from relay.errors import Rejected
from relay.frames import MESSAGE_BYTES, Frame, FrameType, Role, RowDtype
from relay.messages import error_frame, read_dispatch, read_step, result_frame, status_frame, step_result_frame
from relay.records import Json
from relay.roster import Roster
from tests.relay.builders import FakeMarket, hello_json, stage_hello_json


def wait_until(condition: Callable[[], Any], seconds: float = 10) -> Any:
    """The first true value of `condition`; fails after `seconds`."""
    deadline = monotonic() + seconds
    while not (value := condition()):
        assert monotonic() < deadline, f"still not so after {seconds} s"
        sleep(0.005)
    return value


class LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Any, seconds: float = 10) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(seconds)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(5)
        self.loop.close()


class LiveRelay:
    """Starts and stops at one port; `port` stays the same, so that clients find it again."""

    def __init__(self, market: FakeMarket, timing: Timing) -> None:
        self.market = market
        self.timing = timing
        self.roster = Roster()
        self.port = 0
        self._thread = LoopThread()
        self._server: Any = None

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/relay/"

    def start(self) -> None:
        self.roster = Roster()
        self._thread.run(self._start())

    def stop(self) -> None:
        self._thread.run(self._stop())

    def close(self) -> None:
        self.stop()
        self._thread.close()

    async def _start(self) -> None:
        self._server = await serve(
            self._handle, "127.0.0.1", self.port, compression=None, max_size=MESSAGE_BYTES, ping_interval=None
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        if self._server is not None:
            self._server.close(code=1012)
            await self._server.wait_closed()
            self._server = None

    async def _handle(self, socket: ServerConnection) -> None:
        async def send(message: bytes) -> None:
            await socket.send(message)

        async def close(code: int, reason: str) -> None:
            await socket.close(code, reason)

        connection = Connection(self.roster, self.market, self.timing, send, close)
        connection.start()
        try:
            async for message in socket:
                assert isinstance(message, bytes)
                connection.receive(message)
        except ConnectionClosed:
            return
        finally:
            connection.leave()


@contextmanager
def live_relay(market: FakeMarket, ping_seconds: float = 5.0, recheck_seconds: float = 5.0) -> Iterator[LiveRelay]:
    relay = LiveRelay(market, Timing(ping_seconds, recheck_seconds))
    relay.start()
    try:
        yield relay
    finally:
        relay.close()


class ToyWorker:
    """Answers every request with its float32 rows times two, one row per pair (Q8: with zeros of that width).

    `answer` may be replaced; it gets the request and returns the frames to send, or None to say nothing.
    """

    role = Role.WORKER

    def __init__(self, url: str | RelayAddresses, **hello: object) -> None:
        self.hello: Json = hello_json(**hello)
        self.answer: Callable[[Frame], Frame | None] = double_rows
        self.consumes = True
        self.frames: list[Frame] = []
        self.closed: list[str] = []
        self.rejected: Rejected | None = None
        self.client = RelayClient(url, self.role, lambda: self.hello, self._on_frame, on_closed=self.closed.append)
        self._thread = LoopThread()
        self._run = asyncio.run_coroutine_threadsafe(self._main(), self._thread.loop)

    async def _main(self) -> None:
        try:
            await self.client.run()
        except Rejected as error:
            self.rejected = error

    def _on_frame(self, frame: Frame) -> None:
        self.frames.append(frame)
        if frame.type is FrameType.CANCEL:
            return
        answer = self.answer(frame)
        if self.consumes:
            self.client.consumed(frame)
        if answer is not None:
            self.client.send(answer)

    @property
    def session(self) -> int:
        return 0 if self.client.welcome is None else self.client.welcome.session

    def send(self, frame: Frame) -> None:
        self._thread.loop.call_soon_threadsafe(self.client.send, frame)

    def report(self, **fields: object) -> None:
        self.send(status_frame(fields))

    def close(self) -> None:
        self._thread.loop.call_soon_threadsafe(self.client.stop)
        self._run.result(10)
        self._thread.close()


class ToyStage(ToyWorker):
    """Answers every step with its message backwards."""

    role = Role.STAGE

    def __init__(self, url: str | RelayAddresses, **hello: object) -> None:
        super().__init__(url, **stage_hello_json(**hello))
        self.answer = reversed_step


def reversed_step(frame: Frame) -> Frame:
    return step_result_frame(frame, bytes(read_step(frame)[1])[::-1])


def double_rows(frame: Frame) -> Frame:
    body = read_dispatch(frame)
    if frame.row_dtype == RowDtype.F32:
        return result_frame(frame, 2 * body.rows[body.pairs[:, 0]].astype(np.float32))
    width = body.rows.shape[1] // 260 * 256
    return result_frame(frame, np.zeros((len(body.pairs), width), np.float32))


def refuse(code: str) -> Callable[[Frame], Frame | None]:
    return lambda frame: error_frame(frame, code, "as the test wished")
