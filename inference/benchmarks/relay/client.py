"""One client process of the bench: `python -m inference.benchmarks.relay.client PORT ROLE`; obeys lines of JSON.

ROLE `backbone` asks, `worker` answers with as many bytes. Both are the clients that real backbones and workers use
(`relay.client.RelayClient`), once at the relay and once at the consumer that passes messages on unread, so whatever
they cost is on both sides of the ratio. The backbone's commands on stdin, one answer line each:

    {"relay": size, "window": n, "seconds": s}   -> {"count": round trips, "seconds": ...}
    {"pass": size, "window": n, "seconds": s}    -> the same through the consumer that reads nothing
    {"echo": size, "window": n, "seconds": s}    -> {"count": echoes, "seconds": ...}: one bare socket, no second client
"""

import asyncio
import json
import sys
from time import perf_counter
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from inference.benchmarks.relay.names import BACKBONE_TOKEN, BUILD, LAYER, SHA256
from relay.client import RelayClient
from relay.frames import HEADER_BYTES, MESSAGE_BYTES, Frame, FrameType, Role
from relay.messages import LEASE, read_roster

# Requests that found no credit are tried again after this long.
AGAIN_SECONDS = 0.001


def address(port: int, place: str) -> str:
    return f"ws://127.0.0.1:{port}/{place}/"


async def dial(port: int, place: str) -> ClientConnection:
    """A bare socket, as RelayClient opens it."""
    return await connect(
        address(port, place), compression=None, max_size=MESSAGE_BYTES, ping_interval=None, max_queue=64, proxy=None
    )


def fields_of(name: str, token: str = "", *, holds: bool = True) -> dict[str, object]:
    """HELLO of one client of the bench; the token is its name where none is given."""
    replica = {"claim_id": 1, "fence": 1, "layer": LAYER, "first": 0, "last": 64, "sha256": SHA256}
    held = [replica] if holds else []
    return {
        "token": token or name,
        "build": BUILD,
        "kernel_class": "bench",
        "name": name[:40],
        "replicas": held,
    }


class Answerer:
    """The worker: every request's bytes come back as its result, as far as the backbone's credit goes."""

    def __init__(self, url: str) -> None:
        self.client = RelayClient(url, Role.WORKER, lambda: fields_of("worker of the bench"), self._on_frame)

    def _on_frame(self, frame: Frame) -> None:
        if frame.type is FrameType.DISPATCH:
            self.client.consumed(frame)
            self.client.send(frame._replace(type=FrameType.RESULT))


class Asker:
    """The backbone: keeps `window` requests of one size under way.

    session: where the other end is, None: whoever the roster names.
    """

    def __init__(self, url: str, session: int | None) -> None:
        hello = fields_of("backbone", BACKBONE_TOKEN, holds=False)
        self.client = RelayClient(url, Role.BACKBONE, lambda: hello, self._on_frame, on_welcome=lambda _: self._meet())
        self.met = asyncio.Event()
        self._session = session
        self._request = Frame(FrameType.DISPATCH)
        self._size = self._due = self._waiting = self._count = 0
        self._until = 0.0
        self._rested = asyncio.Event()

    async def round(self, size: int, window: int, seconds: float) -> dict[str, Any]:
        """Round trips of bodies of `size` bytes, and how long they took."""
        assert self._session is not None
        body = LEASE.pack(1, 1) + bytes(size - LEASE.size)
        self._request = Frame(FrameType.DISPATCH, 0, LAYER, self._session, 1, rows=1, pairs=1, body=body)
        self._size, self._due, self._waiting, self._count = size, window, 0, 0
        self._rested.clear()
        began = perf_counter()
        self._until = began + seconds
        self._ask()
        await self._rested.wait()
        return {"count": self._count, "seconds": perf_counter() - began}

    def _ask(self) -> None:
        while self._due and self.client.try_send(self._request):
            self._due, self._waiting = self._due - 1, self._waiting + 1
        if self._due and not self._waiting:
            asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._ask)
        elif not self._waiting:
            self._rested.set()

    def _on_frame(self, frame: Frame) -> None:
        if frame.type is FrameType.RESULT:
            assert len(frame.body) == self._size
            self.client.consumed(frame)
            self._count, self._waiting = self._count + 1, self._waiting - 1
            self._due += perf_counter() < self._until
            self._ask()
        elif frame.type is FrameType.ROSTER:
            self._session = next((one.session for one in read_roster(frame).joined), self._session)
            self._meet()

    def _meet(self) -> None:
        if self._session is not None:
            self.met.set()


async def echo_round(socket: ClientConnection, size: int, window: int, seconds: float) -> dict[str, Any]:
    """Messages as large as the relay's, header included."""
    message = bytes(HEADER_BYTES + size)
    began = perf_counter()
    for _ in range(window):
        await socket.send(message)
    waiting, count = window, 0
    while waiting:
        assert len(await socket.recv(decode=False)) == len(message)
        count += 1
        if perf_counter() - began < seconds:
            await socket.send(message)
        else:
            waiting -= 1
    return {"count": count, "seconds": perf_counter() - began}


async def serve_as_worker(port: int) -> None:
    ends = [Answerer(address(port, place)) for place in ("relay", "pass/worker")]
    async with asyncio.TaskGroup() as tasks:
        for end in ends:
            tasks.create_task(end.client.run())
        while not all(end.client.welcome for end in ends):
            await asyncio.sleep(0.01)
        print(json.dumps({"ready": True}), flush=True)


async def obey(port: int) -> None:
    echo = await dial(port, "echo")
    # The consumer that passes on unread numbers nobody: all is 0.
    askers = {"relay": Asker(address(port, "relay"), None), "pass": Asker(address(port, "pass/backbone"), 0)}
    async with asyncio.TaskGroup() as tasks:
        for asker in askers.values():
            tasks.create_task(asker.client.run())
            await asker.met.wait()
        print(json.dumps({"ready": True}), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            order = json.loads(line)
            window, seconds = order.pop("window"), order.pop("seconds")
            ((kind, size),) = order.items()
            if kind == "echo":
                answer = await echo_round(echo, size, window, seconds)
            else:
                answer = await askers[kind].round(size, window, seconds)
            print(json.dumps(answer), flush=True)
        for asker in askers.values():
            asker.client.stop()


if __name__ == "__main__":
    asyncio.run(serve_as_worker(int(sys.argv[1])) if sys.argv[2] == "worker" else obey(int(sys.argv[1])))
