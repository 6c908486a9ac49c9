"""Twenty clients of which each means harm: the memory of a relay on Daphne, measured from outside.

Ten never read: 300 MiB are aimed at each, and each grants all the credit there is, blindly. Ten flood 300 MiB. Sockets
are driven byte by byte: a WebSocket library would read in the background, and stop when it is told to.
"""

import os
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest

from inference.benchmarks.relay.names import BACKBONE_TOKEN, BUILD, LAYER, SHA256
from relay.backbone_link import BackboneLink, SessionKey
from relay.frames import Frame, FrameType, Role, encode_frame
from relay.messages import credit_frame, hello_frame
from relay.work import Dispatch, Failed, Outcome
from tests.e2e.processes import Running, running
from tests.relay.live_relay import wait_until

pytestmark = pytest.mark.e2e

CLIENTS = 20
AIMED_BYTES = 300 << 20
LIMIT_BYTES = 30 << 20
PIECE_BYTES = 120_000


class Raw:
    """A WebSocket client of some forty lines: writes what it is told, reads only when asked."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 10)
        self.socket.sendall(
            b"GET /relay/ HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        while not self.socket.recv(1, socket.MSG_PEEK):
            time.sleep(0.01)
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.socket.recv(1)

    def send(self, message: bytes) -> None:
        size = len(message)
        length = struct.pack(">BH", 0xFE, size) if 126 <= size < 65536 else struct.pack(">BQ", 0xFF, size)
        if size < 126:
            length = bytes([0x80 | size])
        # A mask of zeros changes nothing.
        self.socket.sendall(b"\x82" + length + b"\x00" * 4 + message)

    def hello(self, name: str) -> None:
        replica = {"claim_id": 1, "fence": 1, "layer": LAYER, "first": 0, "last": 64, "sha256": SHA256}
        fields = {"token": name, "build": BUILD, "kernel_class": "none", "name": name, "replicas": [replica]}
        self.send(bytes([Role.WORKER]) + encode_frame(hello_frame(fields)))


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[tuple[Running, int]]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = "inference.benchmarks.relay.server:application"
    command = ["-m", "daphne", "--verbosity", "0", "-b", "127.0.0.1", "-p", str(port), server]
    with running(command, tmp_path / "daphne.log", {}) as process:
        process.wait_for(partial(listens, port), 30, "Daphne listens")
        yield process, port


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Memory:
    """The largest resident set that was seen, in bytes above that at the start."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self.start = self.peak = self._process.memory_info().rss
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stopping.wait(0.02):
            self.peak = max(self.peak, self._process.memory_info().rss)

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()

    @property
    def growth(self) -> int:
        return self.peak - self.start


def aim(link: BackboneLink, key: SessionKey, counts: Counter[str]) -> None:
    """Offers 300 MiB to one session, as fast as the link takes them."""
    rows = np.zeros((1, PIECE_BYTES // 4), np.float32)
    pairs = np.zeros((1, 2), np.uint16)
    dispatch = Dispatch(key, LAYER, 1, 1, 0, rows, pairs)

    def count(outcome: Outcome) -> None:
        counts[outcome.code if isinstance(outcome, Failed) else "result"] += 1

    for _ in range(AIMED_BYTES // PIECE_BYTES // 20):
        link.submit_many([(dispatch, count)] * 20)
        time.sleep(0.005)


def grant_blindly(client: Raw, stream: int, stopping: threading.Event) -> None:
    """Claims to have consumed what was never read, again and again."""
    grant = encode_frame(credit_frame(128 << 10, stream=stream))
    try:
        while not stopping.wait(0.05):
            client.send(grant)
    except OSError:
        return  # cut off


def flood(client: Raw, stream: int, sent: Counter[str], name: str) -> None:
    body = os.urandom(500_000)
    message = encode_frame(Frame(FrameType.RESULT, layer=LAYER, request=1, stream=stream, rows=1, pairs=1, body=body))
    try:
        while sent[name] < AIMED_BYTES:
            client.send(message)
            sent[name] += len(message)
    except OSError:
        return  # cut off


def test_twenty_hostile_clients_cost_the_relay_less_than_thirty_mebibytes(relay: tuple[Running, int]) -> None:
    process, port = relay
    link = BackboneLink([f"ws://127.0.0.1:{port}/relay/"], token=BACKBONE_TOKEN, build=BUILD, kernel_class="none")
    link.start()
    clients = [Raw(port) for _ in range(CLIENTS)]
    for number, client in enumerate(clients):
        client.hello(f"client {number}")
    wait_until(lambda: len(link.sessions) == CLIENTS, 20)
    names = {session.name: key for key, session in link.sessions.items()}
    (welcome,) = [client.welcome for client in link._clients.values()]
    assert welcome is not None
    counts: Counter[str] = Counter()
    sent: Counter[str] = Counter()
    stopping = threading.Event()
    works = []
    for number, client in enumerate(clients):
        if number % 2:
            works.append(partial(flood, client, welcome.stream, sent, f"client {number}"))
        else:
            works.append(partial(aim, link, names[f"client {number}"], counts))
            works.append(partial(grant_blindly, client, welcome.stream, stopping))

    with closing(Memory(process.process.pid)) as memory:
        threads = [threading.Thread(target=work) for work in works]
        for thread in threads:
            thread.start()
        wait_until(lambda: sum(thread.is_alive() for thread in threads) <= CLIENTS // 2, 50)
        stopping.set()
        for thread in threads:
            thread.join(20)

    link.stop()
    for client in clients:
        client.socket.close()
    assert counts["no_credit"] > 0.5 * sum(counts.values())
    assert not counts["result"]
    assert max(sent.values()) < AIMED_BYTES
    assert memory.growth < LIMIT_BYTES, f"{memory.growth / 2**20:.1f} MiB; {counts}, {sent}"
    print(f"grew by {memory.growth / 2**20:.1f} MiB; offered {counts}; flooded {sum(sent.values()) >> 20} MiB")
