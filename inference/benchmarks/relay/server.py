"""The ASGI application that is measured: `/relay/` is the relay's consumer, `/pass/` and `/echo/` the barest there are.

Started by a server's command line as `inference.benchmarks.relay.server:application`. There is no market: every token
but BACKBONE_TOKEN is a node of its own that holds whatever it says. For measurements only.
"""

import os
from collections.abc import Awaitable, Callable
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

import django

django.setup()

from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402
from django.urls import path  # noqa: E402

from inference.benchmarks.relay.names import BACKBONE_TOKEN, BUILD, CLAIMS, LAYER, SHA256  # noqa: E402
from relay.admission import Claim, Node, Standing  # noqa: E402
from relay.allocator import keep_freed_memory  # noqa: E402
from relay.connection import Timing  # noqa: E402
from relay.consumers import RelayConsumer  # noqa: E402
from relay.credit import CREDIT_BYTES, CREDIT_LIMIT_BYTES  # noqa: E402
from relay.frames import encode_frame  # noqa: E402
from relay.messages import welcome_frame  # noqa: E402
from relay.records import Welcome  # noqa: E402
from relay.roster import Roster  # noqa: E402

Event = dict[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]


class OpenDoor:
    """`relay.admission.Authenticator` that asks nobody: the market's part is no part of these figures."""

    def is_backbone(self, token: str) -> bool:
        return token == BACKBONE_TOKEN

    async def standing(self, token: str) -> Standing | None:
        claims = [Claim(number, BUILD, LAYER, 0, 64, 1, "live", SHA256) for number in range(1, CLAIMS + 1)]
        return Standing(Node(token, token, suspended=False), claims)

    async def knows_build(self, build: str) -> bool:
        return build == BUILD

    async def mark_seen(self, node_id: str) -> None:
        """Nobody wants to know."""

    async def take_over(self, node_id: str, session: str) -> None:
        """One process: the roster knows."""

    async def is_newest(self, node_id: str, session: str) -> bool:
        return True


async def echo(scope: Event, receive: Receive, send: Send) -> None:
    """Sends back what comes. Not even Channels' consumer class, which would cost more than all of this."""
    await receive()
    await send({"type": "websocket.accept"})
    while (event := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "bytes": event["bytes"]})


_ends: dict[str, Send] = {}
# Nobody has a number: each end's only peer is 0. No pings, so nobody misses them.
_WELCOME = encode_frame(welcome_frame(Welcome(0, 0, 3600.0, CREDIT_BYTES, CREDIT_LIMIT_BYTES)))


async def pass_on(scope: Event, receive: Receive, send: Send) -> None:
    """An echo by way of a second client: what comes from one socket goes out at the other, unread.

    HELLO is answered with the same WELCOME for everybody: both ends are real clients of the protocol.
    """
    await receive()
    await send({"type": "websocket.accept"})
    await receive()
    await send({"type": "websocket.send", "bytes": _WELCOME})
    mine = scope["url_route"]["kwargs"]["end"]
    other = {"backbone": "worker", "worker": "backbone"}[mine]
    _ends[mine] = send
    while (event := await receive())["type"] == "websocket.receive":
        await _ends[other]({"type": "websocket.send", "bytes": event["bytes"]})


_BARE: dict[str, Any] = {"echo/": echo, "pass/<end>/": pass_on}
keep_freed_memory()
_relay = RelayConsumer.as_asgi(roster=Roster(), authenticator=OpenDoor(), timing=Timing(10.0, 15.0))
# Channels' router takes any ASGI application; Django's types know views only.
_routes: list[Any] = [path("relay/", _relay), *(path(place, app) for place, app in _BARE.items())]
application = ProtocolTypeRouter({"websocket": URLRouter(_routes)})
