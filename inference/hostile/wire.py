"""HTTP requests as raw bytes, one connection each: what no well-behaved client library would send."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

PATIENCE_SECONDS = 30.0
# What one answer may hold; a stream is left earlier.
MOST_ANSWER_BYTES = 8 << 20


@dataclass(frozen=True)
class Answer:
    """status 0: no answer, or none that is HTTP. ended: the server closed the connection, in time."""

    status: int
    head: bytes = b""
    body: bytes = b""
    ended: bool = True


@dataclass
class Tally:
    """What came of many requests. statuses: "200" and so on, "none" for no answer; problems: why that is not ok."""

    statuses: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    slowest_seconds: float = 0.0

    @property
    def count(self) -> int:
        return self.statuses.total()

    def note(self, answer: Answer, what: str, seconds: float, *, must_answer: bool) -> None:
        """A server error is a problem always; silence where the request was well-formed."""
        self.statuses[str(answer.status or "none")] += 1
        self.slowest_seconds = max(self.slowest_seconds, seconds)
        if answer.status >= 500:
            self.problems.append(f"{answer.status} to {what}")
        elif must_answer and not answer.status:
            self.problems.append(f"no answer to {what}")


def request_bytes(method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    """Header values may hold anything but are written as they are; Content-Length is added unless given."""
    fields = {"Host": "127.0.0.1", "Connection": "close", **headers}
    if body and not {"Content-Length", "Transfer-Encoding"} & set(fields):
        fields["Content-Length"] = str(len(body))
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join(lines).encode("utf-8", "surrogatepass") + b"\r\n\r\n" + body


async def ask(port: int, request: bytes, patience_seconds: float = PATIENCE_SECONDS) -> Answer:
    """Sends, reads until the server closes or patience ends."""
    try:
        reader, writer = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port), patience_seconds)
    except (OSError, TimeoutError):
        return Answer(0)
    data, ended = bytearray(), True
    try:
        async with asyncio.timeout(patience_seconds):
            writer.write(request)
            while len(data) < MOST_ANSWER_BYTES and (piece := await reader.read(1 << 16)):
                data += piece
    except TimeoutError:
        ended = False
    except OSError:  # reset: it did not want to read all of it
        ended = True
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
    return parse(bytes(data), ended=ended)


def parse(data: bytes, *, ended: bool = True) -> Answer:
    """The answer in these bytes. The body is left as it was sent, chunks and all: it is only searched."""
    head, _, body = data.partition(b"\r\n\r\n")
    words = head.split(b" ", 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        return Answer(0, ended=ended)
    return Answer(int(words[1]), head, body, ended)


async def timed(port: int, request: bytes, patience_seconds: float = PATIENCE_SECONDS) -> tuple[Answer, float]:
    began = time.perf_counter()
    answer = await ask(port, request, patience_seconds)
    return answer, time.perf_counter() - began
