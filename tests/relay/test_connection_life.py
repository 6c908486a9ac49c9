"""relay/connection.py: how long a session lasts: pings, claims, floods, a second session of the same node."""

import asyncio

import pytest

from relay import connection
from relay.admission import Node, Standing
from relay.codes import CloseCode
from relay.connection import Timing
from relay.consumers import RelayConsumer
from relay.credit import CREDIT_BYTES
from relay.frames import CHUNK_BYTES, Frame, FrameType, Role
from relay.messages import (
    ping_frame,
    read_refusal,
    read_roster,
    status_frame,
)
from relay.roster import Roster
from tests.relay.builders import FakeMarket, claim, replica, replica_json
from tests.relay.consumer_client import ALICE, Client, Dial, dispatch, result


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


async def test_a_client_that_asks_for_pongs_and_reads_none_is_cut_off(
    dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_PINGS", 1_000_000)
    bob = dial()
    await bob.join(Role.WORKER)

    for _ in range(100):
        await bob.send(*[ping_frame(b"12345678")] * 100)

    bob.answers_pings = False
    assert (await bob.closed())[0] == CloseCode.EXCESS


async def test_a_flood_of_pings_is_cut_off_though_its_answers_are_read(dial: Dial) -> None:
    bob = dial()
    await bob.join(Role.WORKER)

    await bob.send(*[ping_frame(b"12345678")] * (connection.MAX_PINGS + 1))

    code, frames = await bob.closed()
    assert code == CloseCode.EXCESS
    assert sum(frame.type is FrameType.PONG for frame in frames) == connection.MAX_PINGS


async def test_pings_may_come_again_after_each_of_the_relays(dial: Dial, roster: Roster) -> None:
    bob = dial(ping_seconds=0.5)
    await bob.join(Role.WORKER)

    await bob.send(*[ping_frame(b"12345678")] * (connection.MAX_PINGS - 1))
    await asyncio.sleep(0.6)
    await bob.send(*[ping_frame(b"12345678")] * (connection.MAX_PINGS - 1))
    await asyncio.sleep(0.1)

    assert len(roster.workers) == 1


async def test_a_ping_is_answered_with_its_token(dial: Dial) -> None:
    bob = dial()
    await bob.join(Role.WORKER)

    await bob.send(ping_frame(b"abcdefgh"))

    assert (await bob.next(FrameType.PONG)).body == b"abcdefgh"


async def test_a_session_that_answers_no_ping_is_closed_after_three_and_the_market_told(
    dial: Dial, roster: Roster, market: FakeMarket
) -> None:
    bob = dial(ping_seconds=0.05)
    bob.answers_pings = False
    await bob.join(Role.WORKER)

    code, frames = await bob.closed()

    assert code == CloseCode.SILENT
    assert 3 <= len([frame for frame in frames if frame.type is FrameType.PING]) <= 4
    assert not roster.workers
    # Before the socket is gone: where the other end is dead, a server may wait long for its farewell.
    assert market.left == ["bob"]


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


async def test_an_outage_of_the_market_ends_no_session_and_is_no_defect(
    dial: Dial, market: FakeMarket, roster: Roster, caplog: pytest.LogCaptureFixture
) -> None:
    bob = dial(recheck_seconds=0.02)
    await bob.join(Role.WORKER)
    market.is_down = True

    await asyncio.sleep(0.2)

    assert market.questions > 3
    assert len(roster.workers) == 1
    # Who asks the market says it once for all sessions, see tests/relay/test_authenticate.py.
    assert [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []
