"""relay/consumers.py and relay/connection.py through Channels' communicator, with a market that the test owns."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from channels.routing import URLRouter
from channels.testing import WebsocketCommunicator

from relay import connection as relay_connection
from relay.admission import Node, Standing
from relay.codes import CloseCode
from relay.connection import Timing
from relay.consumers import RelayConsumer
from relay.credit import CREDIT_BYTES, CREDIT_LIMIT_BYTES
from relay.frames import CHUNK_BYTES, Frame, FrameType, Role, decode_frames, encode_frame, take_message
from relay.messages import (
    LEASE,
    credit_frame,
    hello_frame,
    ping_frame,
    pong_frame,
    read_refusal,
    read_roster,
    read_welcome,
    status_frame,
)
from relay.records import Json, Welcome
from relay.roster import Roster
from relay.routing import websocket_urlpatterns
from tests.relay.builders import FakeMarket, claim, hello_json, replica, replica_json


class Client:
    """One end of a communicator that answers PINGs by itself and keeps frames that nobody waited for yet."""

    def __init__(self, application: Any) -> None:
        self.socket = WebsocketCommunicator(application, "/relay/")
        self.welcome: Welcome | None = None
        self.answers_pings = True
        self._frames: list[Frame] = []

    async def open(self) -> None:
        assert await self.socket.connect() == (True, None)

    async def send(self, *frames: Frame) -> None:
        queue = deque(map(encode_frame, frames))
        while (message := take_message(queue)) is not None:
            await self.socket.send_to(bytes_data=message)

    async def hello(self, role: Role, **fields: object) -> None:
        await self.socket.send_to(bytes_data=bytes([role]) + encode_frame(hello_frame(hello_json(**fields))))

    async def join(self, role: Role, **fields: object) -> Welcome:
        await self.open()
        await self.hello(role, **fields)
        self.welcome = read_welcome(await self.next(FrameType.WELCOME))
        return self.welcome

    async def event(self, timeout: float = 2) -> Json:
        event: Json = await self.socket.receive_output(timeout)
        return event

    async def next(self, *kinds: FrameType) -> Frame:
        """The next frame of one of these kinds; others are kept."""
        while True:
            for index, frame in enumerate(self._frames):
                if frame.type in kinds:
                    return self._frames.pop(index)
            event = await self.event()
            assert event["type"] == "websocket.send", event
            await self._keep(decode_frames(event["bytes"]))

    async def _keep(self, frames: list[Frame]) -> None:
        for frame in frames:
            if frame.type is FrameType.PING and self.answers_pings:
                await self.send(pong_frame(frame))
            else:
                self._frames.append(frame)

    async def closed(self) -> tuple[int, list[Frame]]:
        """The close code, and the frames before it."""
        while True:
            event = await self.event()
            if event["type"] == "websocket.close":
                return event["code"], self._frames
            await self._keep(decode_frames(event["bytes"]))

    async def rejected(self) -> tuple[int, str]:
        code, frames = await self.closed()
        (reject,) = [frame for frame in frames if frame.type is FrameType.REJECT]
        assert len(read_refusal(reject).message) > 15
        return code, read_refusal(reject).code

    async def leave(self) -> None:
        await self.socket.disconnect()


@pytest.fixture
def market() -> FakeMarket:
    return FakeMarket()


@pytest.fixture
def roster() -> Roster:
    return Roster()


Dial = Callable[..., Client]


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


ALICE: dict[str, object] = {"token": "alice-token", "replicas": []}


def dispatch(session: int, *, request: int = 1, claim_id: int = 7, body_bytes: int = 100) -> Frame:
    body = LEASE.pack(1, claim_id) + bytes(body_bytes - LEASE.size)
    return Frame(FrameType.DISPATCH, layer=3, session=session, request=request, rows=1, pairs=1, body=body)


def result(stream: int, body_bytes: int = 100) -> Frame:
    return Frame(FrameType.RESULT, request=1, stream=stream, rows=1, pairs=1, body=bytes(body_bytes))


async def test_a_worker_and_a_backbone_are_welcomed_and_meet(dial: Dial) -> None:
    bob, alice = dial(), dial()

    session = (await bob.join(Role.WORKER)).session
    stream = (await alice.join(Role.BACKBONE, **ALICE)).stream
    change = read_roster(await alice.next(FrameType.ROSTER))

    assert session
    assert stream
    assert alice.welcome == Welcome(0, stream, 5.0, CREDIT_BYTES, CREDIT_LIMIT_BYTES)
    assert change.full
    (joined,) = change.joined
    assert (joined.session, joined.node_id, joined.name, joined.kernel_class) == (session, "bob", "Bob", "numpy")
    assert joined.replicas == (replica().with_state("live"),)


async def test_a_request_and_its_result_are_routed_and_stamped(dial: Dial) -> None:
    bob, alice = dial(), dial()
    session = (await bob.join(Role.WORKER)).session
    stream = (await alice.join(Role.BACKBONE, **ALICE)).stream

    await alice.send(dispatch(session))
    got = await bob.next(FrameType.DISPATCH)
    await bob.send(result(got.stream), Frame(FrameType.DRAIN))
    answer = await alice.next(FrameType.RESULT)
    drain = await alice.next(FrameType.DRAIN)

    assert (got.session, got.stream, got.body) == (session, stream, dispatch(session).body)
    assert (answer.session, answer.stream, len(answer.body)) == (session, stream, 100)
    assert drain.session == session


async def test_credit_is_granted_end_to_end(dial: Dial) -> None:
    bob, alice = dial(), dial()
    session = (await bob.join(Role.WORKER)).session
    stream = (await alice.join(Role.BACKBONE, **ALICE)).stream
    await alice.send(dispatch(session))
    await bob.next(FrameType.DISPATCH)
    await bob.send(credit_frame(132, stream=stream), result(stream))
    await alice.next(FrameType.RESULT)

    await alice.send(credit_frame(132, session=session))

    assert (await alice.next(FrameType.CREDIT)).session == session
    assert (await bob.next(FrameType.CREDIT)).stream == stream


@pytest.mark.parametrize("preamble", sorted(set(range(256)) - {0x42, 0x57}))
async def test_every_other_preamble_is_rejected(dial: Dial, preamble: int) -> None:
    client = dial()
    await client.open()

    await client.socket.send_to(bytes_data=bytes([preamble]))

    assert await client.rejected() == (CloseCode.REJECTED, "bad_preamble")


@pytest.mark.parametrize(
    ("role", "fields", "code"),
    [
        (Role.WORKER, {"token": "nobody"}, "bad_token"),
        (Role.WORKER, {"token": "alice-token"}, "wrong_role"),
        (Role.WORKER, {"token": "mallory-token"}, "suspended"),
        (Role.WORKER, {"build": "other"}, "build_mismatch"),
        (Role.WORKER, {"protocol": 2}, "protocol_version"),
        (Role.BACKBONE, {"token": "nobody"}, "bad_token"),
        (Role.BACKBONE, {"token": "bob-token"}, "wrong_role"),
    ],
)
async def test_a_hello_that_is_not_good_enough_is_rejected_with_a_stable_code(
    dial: Dial, roster: Roster, role: Role, fields: dict[str, object], code: str
) -> None:
    client = dial()
    await client.open()

    await client.hello(role, **fields)

    assert await client.rejected() == (CloseCode.REJECTED, code)
    assert not roster.workers
    assert not roster.backbones


@pytest.mark.parametrize(
    "message",
    [
        b"Wgarbage",
        b"W" + encode_frame(Frame(FrameType.HELLO, body=b"no json")),
        b"W" + encode_frame(Frame(FrameType.HELLO, body=b"{}")),
        b"W" + encode_frame(ping_frame(bytes(8))),
        b"B" + encode_frame(Frame(FrameType.HELLO, body=bytes(64 * 1024 + 1))),
    ],
)
async def test_anything_but_a_hello_is_a_bad_hello(dial: Dial, message: bytes) -> None:
    client = dial()
    await client.open()

    await client.socket.send_to(bytes_data=message)

    assert await client.rejected() == (CloseCode.REJECTED, "bad_hello")


async def test_a_client_that_says_nothing_is_rejected_in_time(dial: Dial) -> None:
    client = dial(hello_seconds=0.05)
    await client.open()

    assert await client.rejected() == (CloseCode.REJECTED, "bad_hello")


async def test_preamble_and_hello_may_come_in_two_messages(dial: Dial) -> None:
    client = dial()
    await client.open()

    await client.socket.send_to(bytes_data=b"W")
    await client.send(hello_frame(hello_json()))

    await client.next(FrameType.WELCOME)


async def test_a_market_that_cannot_be_asked_is_overload_and_not_a_bad_token(dial: Dial, market: FakeMarket) -> None:
    market.is_down = True
    client = dial()
    await client.open()

    await client.hello(Role.WORKER)

    assert await client.rejected() == (CloseCode.REJECTED, "overloaded")


async def test_a_full_relay_says_so(dial: Dial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_connection, "MAX_CONNECTIONS", 1)
    await dial().join(Role.WORKER)
    client = dial()

    await client.open()

    assert await client.rejected() == (CloseCode.REJECTED, "overloaded")


async def test_a_second_connection_of_a_node_replaces_the_first(dial: Dial, roster: Roster) -> None:
    first, second = dial(), dial()
    await first.join(Role.WORKER)

    session = (await second.join(Role.WORKER)).session

    assert await first.rejected() == (CloseCode.REPLACED, "replaced")
    assert list(roster.workers) == [session]
    await first.leave()
    assert list(roster.workers) == [session]


async def test_the_market_learns_that_a_device_is_gone_but_not_of_a_session_that_was_replaced(
    dial: Dial, market: FakeMarket
) -> None:
    first, second = dial(), dial()
    await first.join(Role.WORKER)
    await second.join(Role.WORKER)

    await first.leave()
    replaced = list(market.left)
    await second.leave()

    assert replaced == []
    assert market.left == ["bob"]


async def test_a_second_connection_at_another_relay_replaces_the_first_at_its_next_check(
    dial: Dial, market: FakeMarket, roster: Roster
) -> None:
    first = dial(recheck_seconds=0.05)
    elsewhere = Client(RelayConsumer.as_asgi(roster=Roster(), authenticator=market, timing=Timing(5.0, 0.05)))
    await first.join(Role.WORKER)

    await elsewhere.join(Role.WORKER)

    assert await first.rejected() == (CloseCode.REPLACED, "replaced")
    assert not roster.workers
    await asyncio.sleep(0.1)
    await elsewhere.send(ping_frame(b"12345678"))
    assert (await elsewhere.next(FrameType.PONG)).body == b"12345678"
    await elsewhere.leave()


async def test_text_and_malformed_frames_close_with_a_violation(dial: Dial) -> None:
    texter, babbler = dial(), dial()
    await texter.join(Role.WORKER)
    await babbler.join(Role.WORKER, token="carol-token")

    await texter.socket.send_to(text_data="hello")
    await babbler.socket.send_to(bytes_data=b"\xff" * 40)

    assert (await texter.closed())[0] == CloseCode.VIOLATION
    assert (await babbler.closed())[0] == CloseCode.VIOLATION


async def test_a_worker_may_not_send_what_only_a_backbone_may(dial: Dial) -> None:
    bob = dial()
    session = (await bob.join(Role.WORKER)).session

    await bob.send(dispatch(session))

    assert (await bob.closed())[0] == CloseCode.VIOLATION


async def test_a_flood_above_the_credit_is_cut_off_and_the_rest_discarded(dial: Dial, roster: Roster) -> None:
    bob, alice = dial(), dial()
    await bob.join(Role.WORKER)
    stream = (await alice.join(Role.BACKBONE, **ALICE)).stream

    for _ in range(8):
        await bob.send(result(stream, CHUNK_BYTES))

    assert (await bob.closed())[0] == CloseCode.EXCESS
    assert roster.counters["frames_to_backbones"] == CREDIT_BYTES // (CHUNK_BYTES + 32)
    assert roster.counters["closed_credit"] == 1
    assert not roster.workers


async def test_a_client_that_asks_for_pongs_and_reads_none_is_cut_off(dial: Dial) -> None:
    bob = dial()
    await bob.join(Role.WORKER)

    for _ in range(100):
        await bob.send(*[ping_frame(b"12345678")] * 100)

    bob.answers_pings = False
    assert (await bob.closed())[0] == CloseCode.EXCESS


async def test_a_ping_is_answered_with_its_token(dial: Dial) -> None:
    bob = dial()
    await bob.join(Role.WORKER)

    await bob.send(ping_frame(b"abcdefgh"))

    assert (await bob.next(FrameType.PONG)).body == b"abcdefgh"


async def test_a_session_that_answers_no_ping_is_closed_after_three(dial: Dial, roster: Roster) -> None:
    bob = dial(ping_seconds=0.05)
    bob.answers_pings = False
    await bob.join(Role.WORKER)

    code, frames = await bob.closed()

    assert code == CloseCode.SILENT
    assert 3 <= len([frame for frame in frames if frame.type is FrameType.PING]) <= 4
    assert not roster.workers


async def test_a_session_that_answers_pings_stays(dial: Dial, roster: Roster) -> None:
    bob = dial(ping_seconds=0.05)
    await bob.join(Role.WORKER)

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(bob.next(FrameType.DISPATCH), 0.5)

    assert len(roster.workers) == 1


async def test_presence_is_marked_once_and_not_with_every_ping(dial: Dial, market: FakeMarket) -> None:
    bob = dial(ping_seconds=0.05)
    await bob.join(Role.WORKER)

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(bob.next(FrameType.DISPATCH), 0.4)

    assert market.seen == ["bob"]


async def test_a_status_reads_the_claims_again_and_reaches_the_backbone(dial: Dial, market: FakeMarket) -> None:
    bob, alice = dial(), dial()
    session = (await bob.join(Role.WORKER, replicas=[])).session
    await alice.join(Role.BACKBONE, **ALICE)
    assert read_roster(await alice.next(FrameType.ROSTER)).joined[0].replicas == ()

    await bob.send(status_frame({"replicas": [replica_json()], "load": 0.25}))
    change = read_roster(await alice.next(FrameType.ROSTER))
    status = await alice.next(FrameType.STATUS)

    assert change.joined[0].replicas == (replica().with_state("live"),)
    assert status.session == session


async def test_many_statuses_ask_the_market_once_at_first(dial: Dial, market: FakeMarket) -> None:
    bob = dial()
    await bob.join(Role.WORKER)

    for _ in range(90):
        await bob.send(status_frame({"replicas": []}))
    await asyncio.sleep(0.2)

    assert market.questions <= 3


async def test_a_flood_of_statuses_is_cut_off(dial: Dial) -> None:
    bob = dial()
    await bob.join(Role.WORKER)

    for _ in range(250):
        await bob.send(status_frame({"replicas": []}))

    assert await bob.rejected() == (CloseCode.EXCESS, "too_much")


async def test_a_status_that_cannot_be_read_is_a_violation(dial: Dial) -> None:
    bob = dial()
    await bob.join(Role.WORKER)

    await bob.send(Frame(FrameType.STATUS, body=b"no json"))

    assert await bob.rejected() == (CloseCode.VIOLATION, "protocol_violation")


async def test_a_claim_that_ends_takes_the_lease_away_within_a_recheck(dial: Dial, market: FakeMarket) -> None:
    bob, alice = dial(recheck_seconds=0.05), dial()
    session = (await bob.join(Role.WORKER)).session
    await alice.join(Role.BACKBONE, **ALICE)
    await alice.next(FrameType.ROSTER)

    market.standings["bob-token"] = Standing(Node("bob", "Bob", suspended=False), [claim(fence=2)])
    assert read_roster(await alice.next(FrameType.ROSTER)).joined[0].replicas == ()
    await alice.send(dispatch(session))

    assert read_refusal(await alice.next(FrameType.ERROR)).code == "not_leased"


@pytest.mark.parametrize(
    ("standing", "code"),
    [(None, "bad_token"), (Standing(Node("bob", "Bob", suspended=True)), "suspended")],
)
async def test_a_token_that_is_revoked_ends_the_session(
    dial: Dial, market: FakeMarket, standing: Standing | None, code: str
) -> None:
    bob = dial(recheck_seconds=0.05)
    await bob.join(Role.WORKER)

    if standing is None:
        del market.standings["bob-token"]
    else:
        market.standings["bob-token"] = standing

    assert await bob.rejected() == (CloseCode.REVOKED, code)


async def test_a_changed_backbone_credential_ends_the_backbone_s_session(dial: Dial, market: FakeMarket) -> None:
    alice = dial(recheck_seconds=0.05)
    await alice.join(Role.BACKBONE, **ALICE)

    market.backbone_token = "another"

    assert await alice.rejected() == (CloseCode.REVOKED, "bad_token")


async def test_an_outage_of_the_market_ends_no_session_and_leaves_one_line_per_question(
    dial: Dial, market: FakeMarket, roster: Roster, caplog: pytest.LogCaptureFixture
) -> None:
    bob = dial(recheck_seconds=0.02)
    await bob.join(Role.WORKER)
    market.is_down = True

    await asyncio.sleep(0.2)

    assert market.questions > 3
    assert len(roster.workers) == 1
    said = [record for record in caplog.records if "the market could not be asked" in record.message]
    assert said
    assert all(record.levelname == "WARNING" and record.exc_info is None for record in said)


async def test_a_backbone_that_leaves_cancels_its_work(dial: Dial, roster: Roster) -> None:
    bob, alice = dial(), dial()
    session = (await bob.join(Role.WORKER)).session
    stream = (await alice.join(Role.BACKBONE, **ALICE)).stream
    await alice.send(dispatch(session))
    await bob.next(FrameType.DISPATCH)

    await alice.leave()
    cancel = await bob.next(FrameType.CANCEL)

    assert (cancel.request, cancel.stream) == (0, stream)
    assert not roster.backbones


async def test_a_worker_that_leaves_is_announced(dial: Dial) -> None:
    bob, alice = dial(), dial()
    session = (await bob.join(Role.WORKER)).session
    await alice.join(Role.BACKBONE, **ALICE)
    await alice.next(FrameType.ROSTER)

    await bob.leave()

    assert read_roster(await alice.next(FrameType.ROSTER)).left == (session,)


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


async def test_a_client_that_leaves_during_the_check_leaves_no_trace(
    dial: Dial, roster: Roster, market: FakeMarket, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = asyncio.Event()

    async def slow(build: str) -> bool:
        await gate.wait()
        return True

    monkeypatch.setattr(market, "knows_build", slow)
    bob = dial()
    await bob.open()
    await bob.hello(Role.WORKER)
    await asyncio.sleep(0.02)

    await bob.leave()
    gate.set()
    await asyncio.sleep(0.02)

    assert not roster.workers


async def test_an_unknown_address_is_closed_and_the_relay_s_is_open() -> None:
    application = URLRouter(websocket_urlpatterns)

    stranger = WebsocketCommunicator(application, "/chat/")
    assert (await stranger.connect())[0] is False
    await stranger.wait()

    known = WebsocketCommunicator(application, "/relay/", headers=[(b"origin", b"http://anywhere.test")])
    assert (await known.connect())[0] is True
    await known.disconnect()
