"""The relay's edge: ASGI events in, calls of `relay.connection.Connection` out. Nothing is decided here."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from channels.consumer import AsyncConsumer
from django.conf import settings

from relay.admission import Authenticator
from relay.authenticate import MarketAuthenticator
from relay.codes import CloseCode
from relay.connection import Connection, Timing
from relay.origin import may_connect
from relay.registration import public_urls
from relay.roster import Roster

logger = logging.getLogger(__name__)

Event = dict[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]

ROSTER = Roster()
"""The routing table of this process: frames are routed inside one process, never through the channel layer."""


class RelayConsumer(AsyncConsumer):
    """One WebSocket at /relay/. The arguments are for tests; the defaults are the process's own."""

    def __init__(
        self, roster: Roster | None = None, authenticator: Authenticator | None = None, timing: Timing | None = None
    ) -> None:
        self._roster = ROSTER if roster is None else roster
        self._authenticator = MarketAuthenticator() if authenticator is None else authenticator
        self._timing = timing or Timing(settings.RELAY_PING_SECONDS, settings.RELAY_RECHECK_SECONDS)

    async def __call__(self, scope: Event, receive: Receive, send: Send) -> None:
        """Channels' own loop would join the channel layer and hop to a database thread for every message."""
        connection = Connection(
            self._roster,
            self._authenticator,
            self._timing,
            lambda message: _send(send, {"type": "websocket.send", "bytes": message}),
            lambda code, reason: _send(send, {"type": "websocket.close", "code": code, "reason": reason}),
            public_urls,
        )
        try:
            while (event := await receive())["type"] != "websocket.disconnect":
                if event["type"] == "websocket.connect":
                    if not may_connect(scope.get("headers", ()), own_hosts(), settings.RELAY_ORIGINS):
                        logger.warning("a page of another site tried to open a socket; RELAY_ORIGINS may allow it")
                        await send({"type": "websocket.close"})
                        return
                    await send({"type": "websocket.accept"})
                    connection.start()
                elif event.get("bytes") is not None:
                    connection.receive(event["bytes"])
                else:
                    connection.refuse_text()
            connection.leave()
            await connection.note_left()
        except asyncio.CancelledError:
            # The server stops (or gave up on a client that left): whoever still listens connects elsewhere. Daphne
            # 4.2.3 means to cancel us when it stops, but fails to (KeyError) and drops its sockets without a code.
            await _send(send, {"type": "websocket.close", "code": CloseCode.RESTART.value})
            raise
        finally:
            # Not in a handler of the disconnect event: a server may cancel us without ever sending it.
            connection.leave()


def own_hosts() -> list[str]:
    """Hosts whose pages are ours."""
    return [*settings.ALLOWED_HOSTS, urlsplit(settings.PUBLIC_URL).hostname or "localhost"]


async def _send(send: Send, event: Event) -> None:
    """A socket that is gone already is no error: its disconnect event, or our cancellation, is on the way."""
    try:
        await send(event)
    except (OSError, RuntimeError) as error:
        logger.debug("a client left before %s: %s", event["type"], error)


class UnknownPath(AsyncConsumer):
    """Any other WebSocket address: refused before the handshake (HTTP 403), without a traceback."""

    async def __call__(self, scope: Event, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.close"})
