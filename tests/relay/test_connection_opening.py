"""relay/connection.py: who is let in, and what those hear who are not."""

import asyncio

import pytest

from relay import connection as relay_connection
from relay.codes import CloseCode
from relay.frames import Frame, FrameType, Role, encode_frame
from relay.messages import hello_frame, ping_frame, read_welcome
from relay.roster import Roster
from tests.relay.builders import FakeMarket, hello_json
from tests.relay.consumer_client import Dial


@pytest.mark.parametrize("preamble", sorted(set(range(256)) - {0x42, 0x53, 0x57}))
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
        (Role.WORKER, {"token": "dora-token"}, "wrong_role"),
        (Role.STAGE, {"token": "nobody"}, "bad_token"),
        (Role.STAGE, {"token": "bob-token"}, "wrong_role"),
        (Role.STAGE, {"token": "alice-token"}, "wrong_role"),
        (Role.STAGE, {"token": "dora-token", "build": "other"}, "build_mismatch"),
        (Role.BACKBONE, {"token": "nobody"}, "bad_token"),
        (Role.BACKBONE, {"token": "dora-token"}, "wrong_role"),
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


async def test_preamble_and_hello_may_come_in_two_messages(dial: Dial, roster: Roster) -> None:
    client = dial()
    await client.open()

    await client.socket.send_to(bytes_data=b"W")
    await client.send(hello_frame(hello_json()))

    welcome = read_welcome(await client.next(FrameType.WELCOME))
    assert list(roster.workers) == [welcome.session]


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
