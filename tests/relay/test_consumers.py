"""relay/consumers.py: ASGI events in, ASGI events out, whatever the server does with a socket."""

import asyncio

import pytest
from channels.routing import URLRouter
from channels.testing import WebsocketCommunicator

from relay.codes import CloseCode
from relay.connection import Timing
from relay.consumers import RelayConsumer
from relay.frames import Role, encode_frame
from relay.messages import (
    hello_frame,
)
from relay.records import Json
from relay.roster import Roster
from relay.routing import websocket_urlpatterns
from tests.relay.builders import FakeMarket, hello_json
from tests.relay.consumer_client import Dial


async def test_text_and_malformed_frames_close_with_a_violation(dial: Dial) -> None:
    texter, babbler = dial(), dial()
    await texter.join(Role.WORKER)
    await babbler.join(Role.WORKER, token="carol-token")

    await texter.socket.send_to(text_data="hello")
    await babbler.socket.send_to(bytes_data=b"\xff" * 40)

    assert (await texter.closed())[0] == CloseCode.VIOLATION
    assert (await babbler.closed())[0] == CloseCode.VIOLATION


async def test_a_server_that_stops_closes_with_restart_and_leaves_no_session(
    roster: Roster, market: FakeMarket
) -> None:
    incoming: asyncio.Queue[Json] = asyncio.Queue()
    sent: list[Json] = []

    async def send(event: Json) -> None:
        sent.append(event)

    consumer = RelayConsumer(roster, market, Timing(5, 5))
    server = asyncio.ensure_future(consumer({}, incoming.get, send))
    incoming.put_nowait({"type": "websocket.connect"})
    incoming.put_nowait({"type": "websocket.receive", "bytes": b"W" + encode_frame(hello_frame(hello_json()))})
    await asyncio.sleep(0.05)
    assert len(roster.workers) == 1

    server.cancel()
    with pytest.raises(asyncio.CancelledError):
        await server

    assert sent[-1] == {"type": "websocket.close", "code": CloseCode.RESTART}
    assert not roster.workers


async def test_a_socket_that_fails_while_sending_is_only_gone(roster: Roster, market: FakeMarket) -> None:
    incoming: asyncio.Queue[Json] = asyncio.Queue()

    async def send(event: Json) -> None:
        if event["type"] != "websocket.accept":
            raise OSError("the client left")

    server = asyncio.ensure_future(RelayConsumer(roster, market, Timing(5, 5))({}, incoming.get, send))
    incoming.put_nowait({"type": "websocket.connect"})
    incoming.put_nowait({"type": "websocket.receive", "bytes": b"W" + encode_frame(hello_frame(hello_json()))})
    await asyncio.sleep(0.05)
    incoming.put_nowait({"type": "websocket.disconnect", "code": 1006})
    await server

    assert not roster.workers


async def test_an_unknown_address_is_closed_and_the_relay_s_is_open() -> None:
    application = URLRouter(websocket_urlpatterns)

    stranger = WebsocketCommunicator(application, "/chat/")
    assert (await stranger.connect())[0] is False
    await stranger.wait()

    known = WebsocketCommunicator(application, "/relay/", headers=[(b"origin", b"http://localhost:8000")])
    assert (await known.connect())[0] is True
    await known.disconnect()


async def test_a_page_of_another_site_is_refused_before_the_handshake() -> None:
    application = URLRouter(websocket_urlpatterns)
    mallory = WebsocketCommunicator(application, "/relay/", headers=[(b"origin", b"https://mallory.example")])

    opened, _code = await mallory.connect()
    await mallory.wait()

    assert opened is False
