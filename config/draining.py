"""How a web process stops without a failed request, and gives every request an id: the outermost ASGI application.

On the first SIGTERM it lets nobody in any more (a proxy goes to the next process), leaves the relay's business to
`leave`, waits until the open answers have ended, and only then hands the signal to the server that hosts it. A second
SIGTERM, or WEB_DRAIN_SECONDS=0, stops at once. Known servers: uvicorn, and Daphne (Twisted).
"""

import asyncio
import logging
import secrets
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from time import monotonic
from types import FrameType
from typing import Any

from config import log_context

logger = logging.getLogger(__name__)

Event = dict[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
Application = Callable[[Event, Receive, Send], Awaitable[None]]
Handler = Callable[[int, FrameType | None], Any]

LOOK_SECONDS = 0.05
# A connection that was made just before may still be in the kernel's queue, or its request on the way: it is let in
# and answered before anything is closed.
ACCEPT_TURNS = 5
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
        for _ in range(ACCEPT_TURNS):
            await asyncio.sleep(0)
        stop_listening(self._handler)
        arrived = monotonic() + ARRIVAL_SECONDS
        try:
            await self._leave(self._seconds)
        except Exception:
            logger.exception("the relay did not leave in order")
        while (self._open or monotonic() < arrived) and monotonic() < until:
            await asyncio.sleep(LOOK_SECONDS)
        logger.info("stopped after %.1f s; %d answers are cut", self._seconds - until + monotonic(), self._open)
        self._handler(signal.SIGTERM, None)


def stop_listening(handler: Handler) -> None:
    """New connections are refused, open ones go on. handler: the server's own for SIGTERM, a method of uvicorn's."""
    for listener in getattr(getattr(handler, "__self__", None), "servers", ()):
        listener.close()
    if "twisted.internet.reactor" in sys.modules:
        from twisted.internet import tcp

        # The module is replaced by the reactor that runs, which Twisted's types do not know.
        reactor: Any = sys.modules["twisted.internet.reactor"]
        for reader in reactor.getReaders():
            if isinstance(reader, tcp.Port):
                reader.stopListening()  # type: ignore[no-untyped-call]


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
