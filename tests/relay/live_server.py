"""The relay as it runs, for tests: an ASGI server in a process of its own, the real market in a SQLite file, and the
backbones that talk to it: the link that every backbone uses, and a bare client where a test chooses the bytes herself.
"""

import asyncio
import json
import queue
import signal
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from relay.addresses import RelayAddresses
from relay.backbone_link import BackboneLink
from relay.client import RelayClient
from relay.frames import CHUNK_BYTES, Frame, FrameType, Role
from relay.messages import LEASE, read_roster
from relay.records import Json
from relay.work import Outcome
from tests.e2e.processes import ROOT, Running, running
from tests.relay.builders import BUILD, hello_json
from tests.relay.dispatches import dispatch_of
from tests.relay.live_relay import LoopThread, ToyWorker, wait_until

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
            # Chromium's empty page, in which a client of the tests runs.
            "RELAY_ORIGINS": "null",
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

    def meet(self) -> int:
        """The session of the first worker that comes."""
        session: int = wait_until(lambda: read_roster(self.next(FrameType.ROSTER)).joined)[0].session
        return session

    def exchange_every_length(self, server: Server, seed: int) -> int:
        """Sends a body of each of SIZES to the server's Bob, who sends it back as it is; Bob's session."""
        session = self.meet()
        lease = LEASE.pack(1, server.nodes["bob"]["replicas"][0]["claim_id"])
        source = np.random.default_rng(seed)
        for number, size in enumerate(SIZES, 1):
            body = lease + source.bytes(size - len(lease))
            frame = Frame(FrameType.DISPATCH, layer=3, session=session, request=number, rows=1, pairs=1, body=body)
            wait_until(partial(self.try_send, frame))
            chunks = [self.next(FrameType.RESULT)]
            while chunks[-1].flags:
                chunks.append(self.next(FrameType.RESULT))
            assert b"".join(chunk.body for chunk in chunks) == body, size
            assert {chunk.request for chunk in chunks} == {number}
        return session
