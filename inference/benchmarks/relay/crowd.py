"""Many workers in one process: `python -m inference.benchmarks.relay.crowd PORT COUNT WIDTH`; obeys lines of JSON.

Each is a session of its own that answers with zeros of the right size, and computes nothing. Says `ready` when all are
welcomed. `{"more": n}` opens n sessions more and answers when they are there.
"""

import asyncio
import json
import sys

import numpy as np
from websockets.asyncio.client import ClientConnection

from inference.benchmarks.relay.client import dial, fields_of
from relay.client_session import ClientSession
from relay.frames import Frame, FrameType, Role
from relay.messages import Reassembler, result_frame

OPEN_AT_ONCE = 50
MAX_BODY_BYTES = 8 << 20


class Member:
    """One worker."""

    def __init__(self, socket: ClientConnection, session: ClientSession) -> None:
        self.socket = socket
        self.session = session
        self.task: asyncio.Task[None] | None = None


class Crowd:
    def __init__(self, port: int, width: int) -> None:
        self._port = port
        self._width = width
        self._members: list[Member] = []
        self._count = 0

    async def grow(self, count: int) -> None:
        for start in range(0, count, OPEN_AT_ONCE):
            await asyncio.gather(*(self._join() for _ in range(min(OPEN_AT_ONCE, count - start))))

    async def _join(self) -> None:
        self._count += 1
        name = f"member {self._count}"
        socket = await dial(self._port, "relay")
        answers: list[Frame] = []
        session = ClientSession(
            Role.WORKER, fields_of(name), answers.append, Reassembler(MAX_BODY_BYTES, MAX_BODY_BYTES)
        )
        member = Member(socket, session)
        self._members.append(member)
        opening = session.take()
        assert opening is not None
        await socket.send(opening)
        while session.welcome is None:
            session.receive(await socket.recv(decode=False))
        member.task = asyncio.create_task(self._serve(member, answers))

    async def _serve(self, member: Member, requests: list[Frame]) -> None:
        while True:
            member.session.receive(await member.socket.recv(decode=False))
            for frame in requests:
                if frame.type in (FrameType.DISPATCH, FrameType.CHALLENGE):
                    member.session.consumed(frame)
                    member.session.send(result_frame(frame, np.zeros((frame.pairs, self._width), np.float32)))
            requests.clear()
            while (message := member.session.take()) is not None:
                await member.socket.send(message)


async def main(port: int, count: int, width: int) -> None:
    crowd = Crowd(port, width)
    await crowd.grow(count)
    print(json.dumps({"ready": count}), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        more = json.loads(line)["more"]
        await crowd.grow(more)
        print(json.dumps({"ready": more}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:4])))
