"""inference/demos/nat/slow_line.py: bytes come later, and so does every kind of end."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic

import pytest

from inference.demos.nat.slow_line import Stalls, carry

DELAY = 0.1


@asynccontextmanager
async def line_to(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A client's end of a slow line to a port of this machine."""

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        stalls = Stalls(0.0, 0.0, 0)
        ways = carry(reader, far_writer, DELAY, stalls), carry(far_reader, writer, DELAY, stalls)
        await asyncio.gather(*ways, return_exceptions=True)

    async with await asyncio.start_server(connect, "127.0.0.1", 0) as line:
        near_reader, near_writer = await asyncio.open_connection(*line.sockets[0].getsockname())
        yield near_reader, near_writer
        near_writer.close()


async def test_every_byte_comes_later_in_both_directions() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(5))
        writer.close()

    async with (
        await asyncio.start_server(echo, "127.0.0.1", 0) as server,
        line_to(server.sockets[0].getsockname()[1]) as (reader, writer),
    ):
        began = monotonic()
        writer.write(b"hello")
        answer = await reader.read()

    assert answer == b"hello"
    assert monotonic() - began >= 2 * DELAY


@pytest.mark.parametrize("is_reset", [False, True], ids=["closed", "reset"])
async def test_an_end_that_is_closed_or_reset_is_an_end_at_the_other(is_reset: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        async with line_to(server.getsockname()[1]) as (reader, writer):
            writer.write(b"never read")
            far, _ = await asyncio.get_running_loop().sock_accept(server)
            await asyncio.sleep(2 * DELAY)
            # As the kernel closes the connections of a process that is killed: with a reset where bytes are unread.
            far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", int(is_reset), 0))
            if not is_reset:
                far.recv(100)
            far.close()

            async with asyncio.timeout(5):
                answer = await reader.read()

    assert answer == b""
