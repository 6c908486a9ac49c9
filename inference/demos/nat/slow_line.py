"""A slow line: `python -m inference.demos.nat.slow_line --listen A:P --to A:P --milliseconds 125 ...`, a TCP proxy.

Every byte arrives so many milliseconds later than it was sent, in each direction, however many are under way; from time
to time nothing arrives for a while. It reads no more than WINDOW_BYTES ahead, as a line's buffers would.
"""

import argparse
import asyncio
import random
from time import monotonic

WINDOW_BYTES = 1 << 20
READ_BYTES = 64 * 1024


class Stalls:
    """A gate that is closed for `seconds`, about every `every` seconds; never when `every` is 0."""

    def __init__(self, every: float, seconds: float, seed: int) -> None:
        self._every, self._seconds = every, seconds
        self._random = random.Random(seed)
        self.open = asyncio.Event()
        self.open.set()

    async def run(self) -> None:
        while self._every:
            await asyncio.sleep(self._every * self._random.uniform(0.5, 1.5))
            self.open.clear()
            await asyncio.sleep(self._seconds * self._random.uniform(0.5, 1.0))
            self.open.set()


async def carry(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    delay: float,
    stalls: Stalls,
    window_bytes: int = WINDOW_BYTES,
) -> None:
    """One direction, until its end; the end travels as slowly as the bytes."""
    line: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(max(1, window_bytes // READ_BYTES))

    async def fill() -> None:
        data = b"first"
        while data:
            try:
                data = await reader.read(READ_BYTES)
            except OSError:  # a process that is killed with bytes unread resets its connections: an end like any other
                data = b""
            await line.put((monotonic() + delay, data))

    filling = asyncio.create_task(fill())
    try:
        while True:
            due, data = await line.get()
            await asyncio.sleep(max(0.0, due - monotonic()))
            await stalls.open.wait()
            if not data:
                return
            writer.write(data)
            await writer.drain()
    finally:
        filling.cancel()
        writer.close()


async def serve(options: argparse.Namespace) -> None:
    stalls = Stalls(options.stall_every, options.stall_seconds, options.seed)
    host, port = options.to

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(host, port)
        except OSError:
            writer.close()
            return
        delay = options.milliseconds / 1000
        window = options.window_bytes
        ways = carry(reader, far_writer, delay, stalls, window), carry(far_reader, writer, delay, stalls, window)
        # A direction that breaks ends the other by closing its socket; there is nobody to tell.
        await asyncio.gather(*ways, return_exceptions=True)

    server = await asyncio.start_server(connect, *options.listen)
    async with server:
        await stalls.run()
        await server.serve_forever()


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m inference.demos.nat.slow_line", description=__doc__)
    parser.add_argument("--listen", type=_address, required=True)
    parser.add_argument("--to", type=_address, required=True)
    parser.add_argument("--milliseconds", type=float, required=True, help="one way")
    parser.add_argument("--window-bytes", type=int, default=WINDOW_BYTES, help="under way at once, each way")
    parser.add_argument("--stall-every", type=float, default=0.0, help="seconds; 0: never")
    parser.add_argument("--stall-seconds", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
