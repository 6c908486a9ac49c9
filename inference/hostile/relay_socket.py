"""A bare socket of the relay: says HELLO, and then whatever it is told to."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from time import monotonic

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Origin

from relay.frames import PROTOCOL_VERSION, Frame, FrameType, Role, decode_frames, encode_frame
from relay.messages import hello_frame

OPEN_SECONDS = 60.0
ANSWER_SECONDS = 30.0
CLOSE_SECONDS = 1.0


def hello_fields(token: str, build: str, *replicas: Mapping[str, object]) -> dict[str, object]:
    return {
        "protocol": PROTOCOL_VERSION,
        "token": token,
        "build": build,
        "kernel_class": "numpy",
        "replicas": list(replicas),
    }


class Socket:
    """Frames of one connection, one by one."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self._waiting: list[Frame] = []

    async def send(self, message: bytes | str) -> None:
        await self.connection.send(message)

    async def frame(self, seconds: float = ANSWER_SECONDS) -> Frame:
        """The next one. Raises TimeoutError, ConnectionClosed."""
        if not self._waiting:
            message = await asyncio.wait_for(self.connection.recv(decode=False), seconds)
            self._waiting = list(decode_frames(message))
        return self._waiting.pop(0)

    async def frame_of(self, kind: FrameType) -> Frame:
        while (frame := await self.frame()).type is not kind:
            continue
        return frame

    async def frames(self, seconds: float) -> list[Frame]:
        """All that come in so many seconds."""
        found, end = [], monotonic() + seconds
        try:
            while (left := end - monotonic()) > 0:
                found.append(await self.frame(left))
        except (TimeoutError, ConnectionClosed):
            return found
        return found

    async def closed(self, seconds: float) -> int | None:
        """The close code, once the other end closes; None when it does not in time."""
        end = monotonic() + seconds
        try:
            while (left := end - monotonic()) > 0:
                await self.frame(left)
        except ConnectionClosed as error:
            return None if error.rcvd is None else error.rcvd.code
        except TimeoutError:
            return None
        return None


@asynccontextmanager
async def opened(port: int, origin: str | None = None) -> AsyncIterator[Socket]:
    """A socket that has said nothing. origin: of a page, None: of a program.

    Raises OSError, TimeoutError, WebSocketException.
    """
    address = f"ws://127.0.0.1:{port}/relay/"
    async with connect(
        address,
        open_timeout=OPEN_SECONDS,
        close_timeout=CLOSE_SECONDS,
        ping_interval=None,
        compression=None,
        max_size=None,
        proxy=None,
        origin=None if origin is None else Origin(origin),
    ) as connection:
        yield Socket(connection)


@asynccontextmanager
async def dial(port: int, role: Role, fields: Mapping[str, object]) -> AsyncIterator[Socket]:
    """A socket that has said HELLO."""
    async with opened(port) as socket:
        await socket.send(bytes([role]) + encode_frame(hello_frame(fields)))
        yield socket
