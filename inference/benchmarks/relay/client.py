"""One client process of the bench: `python -m inference.benchmarks.relay.client PORT ROLE`; obeys lines of JSON.

ROLE `backbone` asks, `worker` answers with as many bytes (frames of the real protocol, credit included, and nothing
more); both also hold sockets to the bare consumers. The backbone's commands on stdin, one answer line each:

    {"relay": size, "window": n, "seconds": s}   -> {"count": round trips, "seconds": ...}
    {"pass": size, "window": n, "seconds": s}    -> the same through the consumer that reads nothing
    {"echo": size, "window": n, "seconds": s}    -> {"count": echoes, "seconds": ...}: no second client
"""

import asyncio
import json
import sys
from collections import deque
from time import perf_counter
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from inference.benchmarks.relay.names import BACKBONE_TOKEN, BUILD, LAYER, SHA256
from relay.credit import CREDIT_BYTES, CREDIT_LIMIT_BYTES
from relay.frames import (
    HEADER_BYTES,
    MESSAGE_BYTES,
    MESSAGE_TARGET_BYTES,
    Frame,
    FrameType,
    Role,
    decode_frames,
    encode_frame,
)
from relay.messages import LEASE, credit_frame, hello_frame, pong_frame, read_credit, read_roster

# Both open their window with the first grant, as a real worker does, and grant by quarters of it.
WINDOWS = {Role.WORKER: CREDIT_LIMIT_BYTES, Role.BACKBONE: CREDIT_LIMIT_BYTES}


async def dial(port: int, place: str) -> ClientConnection:
    url = f"ws://127.0.0.1:{port}/{place}/"
    return await connect(url, compression=None, max_size=MESSAGE_BYTES, ping_interval=None, max_queue=64, proxy=None)


async def say_hello(socket: ClientConnection, role: Role, token: str) -> None:
    replica = {"claim_id": 1, "fence": 1, "layer": LAYER, "first": 0, "last": 64, "sha256": SHA256}
    held = [replica] if role is Role.WORKER else []
    fields = {"token": token, "build": BUILD, "kernel_class": "bench", "name": token, "replicas": held}
    await socket.send(bytes([role]) + encode_frame(hello_frame(fields)))


class RelayEnd:
    """What both ends do beside their work: answer PINGs, grant what was consumed."""

    def __init__(self, socket: ClientConnection, role: Role) -> None:
        self.socket = socket
        self._grant_bytes = WINDOWS[role] // 4
        self._extra = WINDOWS[role] - CREDIT_BYTES
        self._consumed = 0

    async def frames(self) -> list[Frame]:
        """Those of the next message that are work."""
        work = []
        for frame in decode_frames(await self.socket.recv(decode=False)):
            if frame.type is FrameType.PING:
                await self.socket.send(encode_frame(pong_frame(frame)))
            elif frame.type in (
                FrameType.DISPATCH,
                FrameType.RESULT,
                FrameType.ROSTER,
                FrameType.WELCOME,
                FrameType.CREDIT,
            ):
                work.append(frame)
        return work

    async def send(self, grant: bytes, message: bytes) -> None:
        """A grant travels with a small message and before a large one, as the real client's does."""
        if grant and len(grant) + len(message) > MESSAGE_TARGET_BYTES:
            await self.socket.send(grant)
            grant = b""
        await self.socket.send(grant + message if grant else message)

    def consume(self, frame: Frame) -> None:
        self._consumed += HEADER_BYTES + len(frame.body)

    def grant(self, frame: Frame) -> bytes:
        """The grant that travels with the next message, empty while little is due."""
        self.consume(frame)
        if self._extra == 0 and self._consumed < self._grant_bytes:
            return b""
        return self.grant_all(frame)

    def grant_all(self, frame: Frame) -> bytes:
        """Grants what is due to the sender of `frame`, however little; empty when nothing is."""
        if not self._consumed:
            return b""
        # The first grant opens the window, as the real client's does.
        due, self._consumed = self._consumed + self._extra, 0
        self._extra = 0
        return encode_frame(credit_frame(due, session=frame.session, stream=frame.stream))


async def answer_for_ever(end: RelayEnd) -> None:
    """The worker: every request's bytes come back as its result, as far as the backbone's credit goes."""
    credit, waiting = CREDIT_BYTES, deque[Frame]()
    while True:
        for frame in await end.frames():
            if frame.type is FrameType.CREDIT:
                credit += read_credit(frame)
            elif frame.type is FrameType.DISPATCH:
                waiting.append(frame)
        while waiting and HEADER_BYTES + len(waiting[0].body) <= credit:
            frame = waiting.popleft()
            credit -= HEADER_BYTES + len(frame.body)
            await end.send(end.grant(frame), encode_frame(frame._replace(type=FrameType.RESULT)))


class Asker:
    """The backbone: keeps `window` requests of one size under way."""

    def __init__(self, end: RelayEnd) -> None:
        self._end = end
        self._session = self._stream = 0
        self._credit = CREDIT_BYTES

    async def meet(self) -> None:
        """Waits until the relay has told our number, and the worker of the bench is there."""
        while not self._session:
            for frame in await self._end.frames():
                if frame.type is FrameType.WELCOME:
                    self._stream = frame.stream
                elif frame.type is FrameType.ROSTER:
                    self._session = next((one.session for one in read_roster(frame).joined), 0)

    async def round(self, size: int, window: int, seconds: float) -> dict[str, Any]:
        body = LEASE.pack(1, 1) + bytes(size - LEASE.size)
        frame = Frame(FrameType.DISPATCH, 0, LAYER, self._session, 1, self._stream, rows=1, pairs=1, body=body)
        request = encode_frame(frame)
        began = perf_counter()
        due, waiting, count = window, 0, 0
        grant = b""
        while due or waiting:
            while due and self._credit >= len(request):
                self._credit -= len(request)
                await self._end.send(grant, request)
                due, waiting, grant = due - 1, waiting + 1, b""
            if grant:
                await self._end.socket.send(grant)
                grant = b""
            for answer in await self._end.frames():
                if answer.type is FrameType.CREDIT:
                    self._credit += read_credit(answer)
                elif answer.type is FrameType.RESULT:
                    assert len(answer.body) == size
                    count, waiting = count + 1, waiting - 1
                    grant += self._end.grant(answer)
                    due += perf_counter() - began < seconds
        seconds_taken = perf_counter() - began
        # As the real client's timer would, at rest.
        if rest := self._end.grant_all(frame._replace(stream=0)):
            await self._end.socket.send(rest)
        return {"count": count, "seconds": seconds_taken}


async def return_for_ever(socket: ClientConnection) -> None:
    """The worker's end of the bare consumer."""
    while True:
        await socket.send(await socket.recv(decode=False))


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
    bare = await dial(port, "pass/worker")
    relay = await dial(port, "relay")
    await say_hello(relay, Role.WORKER, "worker of the bench")
    print(json.dumps({"ready": True}), flush=True)
    await asyncio.gather(answer_for_ever(RelayEnd(relay, Role.WORKER)), return_for_ever(bare))


async def obey(port: int) -> None:
    sockets = {"echo": await dial(port, "echo"), "pass": await dial(port, "pass/backbone")}
    relay = await dial(port, "relay")
    await say_hello(relay, Role.BACKBONE, BACKBONE_TOKEN)
    asker = Asker(RelayEnd(relay, Role.BACKBONE))
    await asker.meet()
    print(json.dumps({"ready": True}), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        order = json.loads(line)
        window, seconds = order.pop("window"), order.pop("seconds")
        ((kind, size),) = order.items()
        if kind == "relay":
            answer = await asker.round(size, window, seconds)
        else:
            answer = await echo_round(sockets[kind], size, window, seconds)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(serve_as_worker(int(sys.argv[1])) if sys.argv[2] == "worker" else obey(int(sys.argv[1])))
