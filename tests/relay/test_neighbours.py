"""Servers and workers one minor version apart work together: protocol 1 as it was at its first release, in bytes.

The old worker and the old relay here import nothing of ours. Whoever changes what they see must give the protocol a new
number (docs/protocol.md, "Versions").
"""

import json
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.sync.server import ServerConnection, serve

from relay.work import Result
from tests.relay.builders import BUILD
from tests.relay.dispatches import rows
from tests.relay.live_relay import ToyWorker, wait_until
from tests.relay.live_server import Alice, Server

pytestmark = pytest.mark.e2e

HEADER = struct.Struct("<BBHIQIHHBBHI")
HELLO, WELCOME, ROSTER, DISPATCH, CHALLENGE, CANCEL = 0x01, 0x02, 0x04, 0x10, 0x11, 0x12
RESULT, ERROR, CREDIT, PING, PONG, STATUS, DRAIN = 0x13, 0x14, 0x15, 0x20, 0x21, 0x22, 0x23
OLD_TYPES = {HELLO, RESULT, ERROR, CREDIT, PING, PONG, STATUS, DRAIN}
# What an old WELCOME held, and a key that a newer one may add.
OLD_WELCOME = {"session": 17, "stream": 0, "ping_seconds": 10.0, "credit_bytes": 1048576, "credit_limit_bytes": 8388608}
NEWER_KEY = {"added_later": {"a": [1]}}


def frames(message: bytes) -> Iterator[tuple[Any, ...]]:
    """(header fields ..., body) of every frame of a message."""
    at = 0
    while at < len(message):
        fields = HEADER.unpack_from(message, at)
        at += HEADER.size
        yield (*fields, message[at : at + fields[-1]])
        at += fields[-1]


def frame(kind: int, body: bytes, **fields: int) -> bytes:
    names = ("flags", "layer", "session", "request", "stream", "rows", "pairs", "row_dtype", "result_dtype", "chunk")
    return HEADER.pack(kind, *(fields.get(name, 0) for name in names), len(body)) + body


class OldWorker:
    """Doubles rows, as the worker of the first release did: its own bytes, no capability, no key that came later."""

    def __init__(self, server: Server) -> None:
        node = server.nodes["bob"]
        self.welcome: dict[str, Any] = {}
        self._hello = {
            "protocol": 1, "token": node["token"], "build": BUILD, "kernel_class": "numpy", "name": "Bob",
            "capabilities": {}, "replicas": node["replicas"],
        }  # fmt: skip
        self._dialled = connect(server.url, compression=None)
        self._socket = self._dialled.__enter__()
        self._socket.send(b"\x57" + frame(HELLO, json.dumps(self._hello).encode()))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while True:
                for found in frames(self._socket.recv(decode=False)):
                    self._act(found)
        except ConnectionClosed:
            return

    def _act(self, found: tuple[Any, ...]) -> None:
        kind, _, layer, session, request, stream, row_count, pair_count, row_dtype, result_dtype, _, _, body = found
        if kind == WELCOME:
            self.welcome = json.loads(body)
        elif kind == PING:
            self._socket.send(frame(PONG, body))
        elif kind in (DISPATCH, CHALLENGE):
            assert (row_dtype, result_dtype) == (0, 0), "an old worker knows float32 rows, one per pair"
            at = 12 + 4 * pair_count
            pairs = np.frombuffer(body[12:at], "<u2").reshape(pair_count, 2)
            values = np.frombuffer(body[at:], "<f4").reshape(row_count, -1)[pairs[:, 0]]
            answer = frame(RESULT, (2 * values).tobytes(), layer=layer, session=session, request=request,
                           stream=stream, rows=row_count, pairs=pair_count)  # fmt: skip
            credit = frame(CREDIT, struct.pack("<I", HEADER.size + len(body)), session=session, stream=stream)
            self._socket.send(answer + credit)

    def close(self) -> None:
        self._dialled.__exit__(None, None, None)
        self._thread.join(5)


@pytest.mark.parametrize("program", ["daphne", "uvicorn"])
def test_a_worker_of_the_version_before_serves_a_new_server_and_backbone(tmp_path: Path, program: str) -> None:
    with ExitStack() as stack:
        server = Server(tmp_path, program)
        server.start()
        stack.callback(server.close)
        bob = OldWorker(server)
        stack.callback(bob.close)
        alice = Alice(server)
        stack.callback(alice.link.stop)
        key = alice.meet()

        answers = [alice.ask(key, rows(count, 256)) for count in (1, 7, 64)]

    assert set(OLD_WELCOME) <= set(bob.welcome)
    for count, answer in zip((1, 7, 64), answers, strict=True):
        assert isinstance(answer, Result)
        assert np.array_equal(answer.values, 2 * rows(count, 256))


class OldRelay:
    """Welcomes one worker with what the first release said, asks it once, and keeps what it says."""

    def __init__(self) -> None:
        self.hello: dict[str, Any] = {}
        self.types: set[int] = set()
        self.result: tuple[Any, ...] = ()
        self._server = serve(self._on_worker, "127.0.0.1", 0, compression=None)
        self.url = f"ws://127.0.0.1:{self._server.socket.getsockname()[1]}/relay/"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def _on_worker(self, socket: ServerConnection) -> None:
        opening = socket.recv(decode=False)
        assert opening[0] == 0x57
        ((*_, body),) = frames(opening[1:])
        self.types.add(HELLO)
        self.hello = json.loads(body)
        socket.send(frame(WELCOME, json.dumps({**OLD_WELCOME, **NEWER_KEY}).encode(), session=17))
        lease = struct.pack("<IQ", 1, self.hello["replicas"][0]["claim_id"])
        pairs = np.array([[0, 0], [1, 1]], "<u2").tobytes()
        values = np.arange(8, dtype="<f4").tobytes()
        body = lease + pairs + values
        socket.send(frame(DISPATCH, body, layer=3, session=17, request=9, stream=34, rows=2, pairs=2))
        socket.send(frame(PING, b"12345678"))
        for message in socket:
            for found in frames(message if isinstance(message, bytes) else message.encode()):
                self.types.add(found[0])
                if found[0] == RESULT:
                    self.result = found

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join(5)


def test_a_new_worker_serves_a_relay_of_the_version_before() -> None:
    relay = OldRelay()
    bob = ToyWorker(relay.url)

    result = wait_until(lambda: relay.result)
    wait_until(lambda: PONG in relay.types)

    assert {"protocol", "token", "build", "kernel_class", "name", "capabilities", "replicas"} <= set(relay.hello)
    assert relay.hello["protocol"] == 1
    assert {"claim_id", "fence", "layer", "first", "last", "sha256"} <= set(relay.hello["replicas"][0])
    assert relay.types <= OLD_TYPES
    # layer, session, request, stream are returned as they came; float32 rows, one per pair.
    assert result[2:6] == (3, 17, 9, 34)
    assert np.array_equal(np.frombuffer(result[-1], "<f4"), 2 * np.arange(8))
    bob.close()
    relay.close()
