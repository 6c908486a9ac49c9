"""How a web process stops without a failed request, and gives every request an id: the outermost ASGI application.

On the first SIGTERM it lets nobody in any more (a proxy goes to the next process), leaves the relay's business to
`leave`, waits until the open answers have ended, and only then hands the signal to the server that hosts it. A second
SIGTERM, or WEB_DRAIN_SECONDS=0, stops at once. Known servers: those of `listeners`.
"""

import asyncio
import logging
import secrets
import signal
import threading
from collections.abc import Awaitable, Callable
from time import monotonic
from types import FrameType
from typing import Any

from config import log_context
from config.listeners import listeners_of, stop_listening

logger = logging.getLogger(__name__)

Event = dict[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
Application = Callable[[Event, Receive, Send], Awaitable[None]]
Handler = Callable[[int, FrameType | None], Any]

LOOK_SECONDS = 0.05
# The request of a connection that was let in last may still be on the way; then its answer is.
ARRIVAL_SECONDS = 0.5
REQUEST_ID = b"x-request-id"
MOST_ID_LENGTH = 64


class Draining:
    """`leave(seconds)`: empties the relay of this process; awaited while open answers go on."""

    def __init__(self, application: Application, seconds: float, leave: Callable[[float], Awaitable[object]]) -> None:
        self._application, self._seconds, self._leave = application, seconds, leave
        self._open = 0
        self._handler: Handler | None = None
        self._draining: asyncio.Task[None] | None = None

    async def __call__(self, scope: Event, receive: Receive, send: Send) -> None:
        if self._handler is None and self._seconds:
            self._take_the_signal()
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        request_id = _request_id(scope)
        self._open += 1
        try:
            with log_context.bound(request_id=request_id):
                await self._application(scope, receive, _named(send, request_id))
        finally:
            self._open -= 1

    def _take_the_signal(self) -> None:
        """Not before the first event: the servers set their own handlers when they begin to run."""
        handler = signal.getsignal(signal.SIGTERM)
        if threading.current_thread() is not threading.main_thread() or not callable(handler):
            return
        loop = asyncio.get_running_loop()
        self._handler = handler

        def on_signal(number: int, frame: FrameType | None) -> None:
            if self._draining is None:
                loop.call_soon_threadsafe(self._begin)
            else:
                handler(number, frame)

        signal.signal(signal.SIGTERM, on_signal)

    def _begin(self) -> None:
        if self._draining is None:
            self._draining = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        assert self._handler is not None
        until = monotonic() + self._seconds
        logger.info("stopping: %d answers are open; they have %g s", self._open, self._seconds)
        try:
            await stop_listening(listeners_of(getattr(self._handler, "__self__", None)))
        except Exception:
            logger.exception("the server goes on listening until it stops")
        arrived = monotonic() + ARRIVAL_SECONDS
        try:
            await self._leave(self._seconds)
        except Exception:
            logger.exception("the relay did not leave in order")
        while (self._open or monotonic() < arrived) and monotonic() < until:
            await asyncio.sleep(LOOK_SECONDS)
        await asyncio.sleep(LOOK_SECONDS)  # what was answered last leaves the server's buffers
        logger.info("stopped after %.1f s; %d answers are cut", self._seconds - until + monotonic(), self._open)
        self._handler(signal.SIGTERM, None)


def _request_id(scope: Event) -> str:
    """The proxy's X-Request-Id where it is printable and short, else a new one."""
    given = next((value for name, value in scope["headers"] if name == REQUEST_ID), b"").decode("latin-1")
    is_usable = given.isascii() and given.replace("-", "").isalnum() and len(given) <= MOST_ID_LENGTH
    return given if is_usable else secrets.token_hex(8)


def _named(send: Send, request_id: str) -> Send:
    """Puts the id into the answer's headers."""

    async def send_named(event: Event) -> None:
        if event["type"] == "http.response.start":
            event = {**event, "headers": [*event.get("headers", ()), (REQUEST_ID, request_id.encode())]}
        await send(event)

    return send_named
