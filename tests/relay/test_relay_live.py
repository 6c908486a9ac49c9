"""The relay as it runs: Daphne (or uvicorn) in a process of its own, the real market in a SQLite file, real clients.

Bob and Carol are toy workers on the client that every worker uses; Alice is the backbone's link, or a bare client where
a test chooses the bytes herself.
"""

import asyncio
import json
import queue
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from relay.addresses import RelayAddresses
from relay.backbone_link import BackboneLink
from relay.client import RelayClient
from relay.codes import CloseCode
from relay.frames import CHUNK_BYTES, Frame, FrameType, Role, encode_frame
from relay.messages import LEASE, hello_frame, read_roster
from relay.records import Json
from relay.work import Outcome, Result
from tests.e2e.processes import ROOT, Running, running
from tests.relay.builders import BUILD, hello_json
from tests.relay.live_relay import LoopThread, ToyWorker, wait_until
from tests.relay.test_backbone_link import request as dispatch_of
from tests.relay.test_backbone_link import rows

pytestmark = pytest.mark.e2e

TOKEN = "the backbone's credential"
# Messages of 125, 126, 65,535 and 65,536 bytes need bodies that are 32 smaller.
SIZES = [
    16,
    93,
    94,
    95,
    125,
    126,
    65_503,
    65_504,
    65_535,
    65_536,
    CHUNK_BYTES - 1,
    CHUNK_BYTES,
    CHUNK_BYTES + 1,
    900_000,
]


class Server:
    """An ASGI server at one port over one database; `start` and `end` as often as a test likes."""

    def __init__(
        self, folder: Path, program: str = "daphne", redis_url: str = "", first: "Server | None" = None
    ) -> None:
        """redis_url: registers there as a relay. first: a server whose market this one shares."""
        self.folder = folder
        self.program = program
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.environment = {
            "DATABASE_URL": f"sqlite:///{folder / 'market.sqlite3'}",
            "VAR_DIR": str(folder),
            "BACKBONE_TOKEN": TOKEN,
            "RELAY_RECHECK_SECONDS": "0.5",
            "DJANGO_SETTINGS_MODULE": "config.settings",
        }
        if redis_url:
            self.environment |= {"REDIS_URL": redis_url, "RELAY_ADDRESS": self.url}
        self.nodes: dict[str, Json] = first.nodes if first else json.loads(self.market_day("open"))
        self._context: Any = None
        self.process: Running

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/relay/"

    def market_day(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "tests.relay.market_day", *arguments]
        done = subprocess.run(
            command, cwd=ROOT, env={"PATH": "/usr/bin", **self.environment}, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self) -> None:
        address = {"daphne": ["-b", "127.0.0.1", "-p"], "uvicorn": ["--host", "127.0.0.1", "--port"]}[self.program]
        command = ["-m", self.program, *address, str(self.port), "config.asgi:application"]
        self._context = running(command, self.folder / f"server-{self.port}.log", self.environment)
        self.process = self._context.__enter__()
        self.process.wait_for(self._listens, 30, f"{self.program} listens")

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def end(self, number: signal.Signals) -> None:
        self.process.end(number, 15)
        self.close()

    def close(self) -> None:
        self._context.__exit__(None, None, None)

    def worker(self, name: str, moves: bool = False, **hello: object) -> ToyWorker:
        """moves: to other relays of the server when this one goes away."""
        node = self.nodes[name]
        url = RelayAddresses(self.url) if moves else self.url
        return ToyWorker(url, **{"token": node["token"], "replicas": node["replicas"], "name": name, **hello})


class Alice:
    """A backbone's link to the live server."""

    def __init__(self, server: Server) -> None:
        self.link = BackboneLink([server.url], token=TOKEN, build=BUILD, kernel_class="ggml")
        self.link.start()
        self.outcomes: queue.Queue[Outcome] = queue.Queue()

    def meet(self, count: int = 1) -> Any:
        wait_until(lambda: len(self.link.sessions) == count, 20)
        return next(iter(self.link.sessions))

    def ask(self, key: Any, values: np.ndarray) -> Outcome:
        (replica,) = self.link.sessions[key].replicas
        dispatch = dispatch_of(key, values, claim_id=replica.claim_id, fence=replica.fence)
        self.link.submit(dispatch, self.outcomes.put)
        return self.outcomes.get(timeout=20)


class RawBackbone:
    """A backbone that chooses every byte."""

    def __init__(self, server: Server) -> None:
        self.frames: queue.Queue[Frame] = queue.Queue()
        hello = {**hello_json(token=TOKEN), "replicas": []}
        self.client = RelayClient(server.url, Role.BACKBONE, lambda: hello, self._on_frame)
        self._thread = LoopThread()
        self._run = asyncio.run_coroutine_threadsafe(self.client.run(), self._thread.loop)

    def _on_frame(self, frame: Frame) -> None:
        self.frames.put(frame)
        self.client.consumed(frame)

    def next(self, kind: FrameType) -> Frame:
        while (frame := self.frames.get(timeout=20)).type is not kind:
            continue
        return frame

    def try_send(self, frame: Frame) -> bool:
        async def send() -> bool:
            return self.client.try_send(frame)

        return bool(self._thread.run(send()))

    def close(self) -> None:
        self._thread.loop.call_soon_threadsafe(self.client.stop)
        self._run.result(10)
        self._thread.close()


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
    session = wait_until(lambda: read_roster(alice.next(FrameType.ROSTER)).joined)[0].session
    lease = LEASE.pack(1, server.nodes["bob"]["replicas"][0]["claim_id"])
    source = np.random.default_rng(1)

    for number, size in enumerate(SIZES, 1):
        body = lease + source.bytes(size - len(lease))
        frame = Frame(FrameType.DISPATCH, layer=3, session=session, request=number, rows=1, pairs=1, body=body)
        wait_until(partial(alice.try_send, frame))

        chunks = [alice.next(FrameType.RESULT)]
        while chunks[-1].flags:
            chunks.append(alice.next(FrameType.RESULT))

        assert b"".join(chunk.body for chunk in chunks) == body, size
        assert {chunk.request for chunk in chunks} == {number}
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
