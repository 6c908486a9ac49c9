"""The relay as it runs: Daphne (or uvicorn) in a process of its own, the real market in a SQLite file, real clients.

Bob and Carol are toy workers on the client that every worker uses; Alice is the backbone's link, or a bare client where
a test chooses the bytes herself.
"""

import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from relay.backbone_link import BackboneLink
from relay.codes import CloseCode
from relay.frames import CHUNK_BYTES, Frame, FrameType, encode_frame
from relay.messages import hello_frame
from relay.work import Result
from tests.relay.builders import BUILD, hello_json
from tests.relay.dispatches import rows
from tests.relay.live_relay import wait_until
from tests.relay.live_server import SIZES, TOKEN, Alice, RawBackbone, Server

pytestmark = pytest.mark.e2e


@pytest.fixture
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Server]:
    live = Server(tmp_path, getattr(request, "param", "daphne"))
    live.start()
    yield live
    live.close()


BOTH_SERVERS = pytest.mark.parametrize("server", ["daphne", "uvicorn"], indirect=True)


@BOTH_SERVERS
def test_everything_that_goes_in_comes_out_in_both_directions(server: Server) -> None:
    bob = server.worker("bob")
    bob.answer = lambda frame: frame._replace(type=FrameType.RESULT)
    alice = RawBackbone(server)

    alice.exchange_every_length(server, seed=1)

    assert len(bob.frames) == len(SIZES)
    alice.close()
    bob.close()


@BOTH_SERVERS
def test_rows_come_back_doubled_and_survive_kill_9_of_the_server(server: Server) -> None:
    bob, alice = server.worker("bob"), Alice(server)
    key = alice.meet()
    for count in (1, 7, 64, 500):
        values = rows(count, 256)
        outcome = alice.ask(key, values)
        assert isinstance(outcome, Result)
        assert np.array_equal(outcome.values, 2 * values)

    server.end(signal.SIGKILL)
    wait_until(lambda: not alice.link.sessions)
    server.start()
    again = alice.meet()
    outcome = alice.ask(again, rows(3, 256))

    assert again != key
    assert isinstance(outcome, Result)
    alice.link.stop()
    bob.close()


def test_a_server_that_is_told_to_stop_is_found_again(server: Server) -> None:
    bob = server.worker("bob")
    first = wait_until(lambda: bob.session)

    server.end(signal.SIGTERM)
    wait_until(lambda: bob.closed)
    server.start()

    assert wait_until(lambda: bob.session, 20) != first
    bob.close()


def test_two_workers_of_one_identity_and_strangers_are_told_why(server: Server) -> None:
    first = server.worker("bob")
    wait_until(lambda: first.session)
    others = {
        "wrong_role": server.worker("carol", token=TOKEN),
        "bad_token": server.worker("carol", token="a guess"),
        "build_mismatch": server.worker("carol", build="ab" * 16),
        "protocol_version": server.worker("carol", protocol=2),
    }

    second = server.worker("bob")

    assert wait_until(lambda: first.rejected).code == "replaced"
    assert wait_until(lambda: second.session)
    for code, worker in others.items():
        assert wait_until(partial(getattr, worker, "rejected")).code == code
        worker.close()
    first.close()
    second.close()


def test_a_device_token_does_not_make_a_backbone(server: Server) -> None:
    link = BackboneLink([server.url], token=server.nodes["bob"]["token"], build=BUILD, kernel_class="ggml")
    link.start()

    assert wait_until(lambda: link.rejected).code == "wrong_role"
    link.stop()


def test_a_suspended_node_is_cut_off_within_a_recheck(server: Server) -> None:
    bob, alice = server.worker("bob"), Alice(server)
    alice.meet()

    server.market_day("suspend", server.nodes["bob"]["node_id"])

    assert wait_until(lambda: bob.rejected).code == "suspended"
    wait_until(lambda: not alice.link.sessions)
    alice.link.stop()
    bob.close()


def test_a_replica_that_is_held_but_not_leased_is_not_shown(server: Server) -> None:
    stolen = server.nodes["carol"]["replicas"]
    bob, alice = server.worker("bob", replicas=stolen), Alice(server)
    key = alice.meet()

    assert alice.link.sessions[key].replicas == ()
    bob.report(replicas=server.nodes["bob"]["replicas"])

    wait_until(lambda: alice.link.sessions[key].replicas)
    alice.link.stop()
    bob.close()


def test_a_message_above_one_mebibyte_ends_that_connection_only(server: Server) -> None:
    carol = server.worker("carol")
    session = wait_until(lambda: carol.session)

    with connect(server.url, compression=None) as mallory:
        mallory.send(b"W" + bytes(1024 * 1024))
        with pytest.raises(ConnectionClosed):
            mallory.recv(timeout=10)

    assert carol.session == session
    carol.close()


@BOTH_SERVERS
@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b"Xanything", CloseCode.REJECTED),
        (b"W" + encode_frame(hello_frame(hello_json(token="a guess"))), CloseCode.REJECTED),
        ("text", CloseCode.VIOLATION),
    ],
)
def test_close_codes_reach_the_client(server: Server, message: bytes | str, code: CloseCode) -> None:
    with connect(server.url, compression=None) as mallory:
        mallory.send(message)
        with pytest.raises(ConnectionClosed) as caught:
            read_to_the_end(mallory)

    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == code


def read_to_the_end(mallory: ClientConnection) -> None:
    while True:
        mallory.recv(timeout=10)


def send_again_and_again(mallory: ClientConnection, message: bytes) -> None:
    for _ in range(400):
        mallory.send(message)


def test_a_flood_is_cut_off_at_the_first_excess_and_takes_no_memory(server: Server) -> None:
    alice = Alice(server)
    bob = server.nodes["bob"]
    daphne = psutil.Process(server.process.process.pid)
    flood = encode_frame(Frame(FrameType.RESULT, request=1, stream=1, rows=1, pairs=1, body=bytes(CHUNK_BYTES)))
    before = daphne.memory_info().rss

    with connect(server.url, compression=None) as mallory:
        hello = hello_frame(hello_json(token=bob["token"], replicas=bob["replicas"]))
        mallory.send(b"W" + encode_frame(hello))
        key = alice.meet()
        stream = alice.link._clients[0].welcome.stream  # type: ignore[union-attr]
        flood = flood[:16] + stream.to_bytes(4, "little") + flood[20:]
        with pytest.raises(ConnectionClosed) as caught:
            send_again_and_again(mallory, flood)

    assert caught.value.rcvd is None or caught.value.rcvd.code == CloseCode.EXCESS
    assert daphne.memory_info().rss - before < 20 * 1024 * 1024
    assert key
    alice.link.stop()
