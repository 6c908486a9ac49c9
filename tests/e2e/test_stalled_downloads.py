"""Slices over a real Daphne: a download by pieces, and readers that never read."""

import hashlib
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest

from inference.slices import PIECE_BYTES, SliceManifest
from tests.e2e.processes import Running, running
from tests.model_files import DEMO_MODEL

pytestmark = pytest.mark.e2e

READERS = 50
# A database with Alice's claim of a whole layer, then Daphne on these addresses alone.
SERVER = """if True:
    import json, os, sys
    os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
    import django
    from django.conf import settings
    settings.ROOT_URLCONF = "inference.urls"
    django.setup()
    from django.core.management import call_command
    call_command("migrate", verbosity=0)
    from daphne.cli import CommandLineInterface
    from inference.builds import current_index
    from market.commands import RangeWish, claim_ranges, publish_build, register_node
    from tests.builders import demo_build
    fingerprint = current_index().fingerprint
    publish_build(demo_build(fingerprint))
    node_id, token = register_node("Alice", "numpy")
    claim_ranges(node_id, [RangeWish(0, 0, 32)])
    with open(sys.argv[1], "w") as file:
        json.dump({"token": token, "path": f"/api/slices/{fingerprint}/0/0-32"}, file)
    CommandLineInterface().run(["--port", sys.argv[2], "config.asgi:application"])
"""


@dataclass
class Server:
    process: Running
    port: int
    token: str
    path: str

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.path}"

    def client(self) -> httpx.Client:
        return httpx.Client(headers={"Authorization": f"Bearer {self.token}"}, timeout=30)

    def memory_bytes(self) -> int:
        return int(psutil.Process(self.process.process.pid).memory_info().rss)

    def ask_and_never_read(self) -> socket.socket:
        reader = socket.socket()
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.connect(("127.0.0.1", self.port))
        reader.sendall(
            f"GET {self.path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.token}\r\n"
            "Range: bytes=0-\r\n\r\n".encode()
        )
        return reader


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    port, told = free_port(), tmp_path / "told.json"
    environment = {"VAR_DIR": str(tmp_path), "MODEL_PATH": str(DEMO_MODEL)}
    with running(["-c", SERVER, str(told), str(port)], tmp_path / "log", environment) as process:
        process.wait_for(lambda: accepts(port), 60, "Daphne listens")
        yield Server(process, port, **json.loads(told.read_text()))


def test_a_slice_comes_piece_by_piece_and_stalled_readers_hold_one_piece_each(server: Server) -> None:
    with server.client() as client:
        manifest = SliceManifest.from_json(client.get(server.address + "/manifest").content)
        received = b""
        while len(received) < manifest.size:
            answer = client.get(server.address, headers={"Range": f"bytes={len(received)}-"})
            assert answer.status_code == 206
            received += answer.content
    assert hashlib.sha256(received).hexdigest() == manifest.sha256

    before = server.memory_bytes()
    with ExitStack() as stack:
        for _ in range(READERS):
            stack.enter_context(server.ask_and_never_read())
        time.sleep(3)
        grown = server.memory_bytes() - before
        with server.client() as client:
            alive = client.get(server.address, headers={"Range": "bytes=0-9"}).status_code

    # Two copies of a piece while Twisted joins them, a little for each connection; 177 MB would be the whole slices.
    assert grown < READERS * (2 * PIECE_BYTES + 200_000)
    assert alive == 206
