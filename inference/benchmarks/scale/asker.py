"""HTTP clients in one process: `python -m inference.benchmarks.scale.asker`; obeys lines of JSON, one answer line each.

{"ports": [...], "path": ..., "tokens": [...], "connections": n, "seconds": s}
    every connection asks again as soon as it was answered   -> {"count", "failed", "seconds"}
the same with "per_second": r
    requests that are due at a fixed rate, one token after another, whether or not earlier ones were answered
    -> {"count", "failed", "milliseconds": [from the due time to the answer]}

Raw HTTP/1.1 over kept connections: a client library would cost more than the server.
"""

import asyncio
import itertools
import json
import sys
from collections.abc import Iterator
from time import perf_counter
from typing import Any

from inference.benchmarks.api.stack import MARK


class Connection:
    """One kept connection; opened again when the server closed it."""

    def __init__(self, port: int, path: str) -> None:
        self._port, self._path = port, path
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, token: str) -> bool:
        """Whether the answer is 200."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        writer.write(f"GET {self._path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            size = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
            await reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError, ValueError):
            self.close()
            return False
        if b"connection: close" in head:
            self.close()
        return head.startswith(b"http/1.1 200")

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def as_fast_as_possible(order: dict[str, Any]) -> dict[str, Any]:
    tokens = itertools.cycle(order["tokens"])
    ports = itertools.cycle(order["ports"])
    connections = [Connection(next(ports), order["path"]) for _ in range(order["connections"])]
    counts = {True: 0, False: 0}
    began = perf_counter()

    async def keep_asking(connection: Connection) -> None:
        while perf_counter() - began < order["seconds"]:
            counts[await connection.ask(next(tokens))] += 1
        connection.close()

    await asyncio.gather(*map(keep_asking, connections))
    return {"count": counts[True], "failed": counts[False], "seconds": perf_counter() - began}


async def at_a_rate(order: dict[str, Any]) -> dict[str, Any]:
    per_second = float(order["per_second"])
    due: Iterator[int] = iter(range(int(per_second * order["seconds"])))
    tokens, taken, failed = itertools.cycle(order["tokens"]), [], 0
    began = perf_counter() + 0.1

    async def poll(connection: Connection) -> None:
        nonlocal failed
        for number in due:
            moment = began + number / per_second
            await asyncio.sleep(max(0.0, moment - perf_counter()))
            if await connection.ask(next(tokens)):
                taken.append(1000 * (perf_counter() - moment))
            else:
                failed += 1
        connection.close()

    ports = itertools.cycle(order["ports"])
    await asyncio.gather(*(poll(Connection(next(ports), order["path"])) for _ in range(order["connections"])))
    return {"count": len(taken), "failed": failed, "milliseconds": taken}


def main() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = asyncio.run(at_a_rate(order) if "per_second" in order else as_fast_as_possible(order))
        except OSError as error:
            answer = {"error": str(error)}
        print(MARK + json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
