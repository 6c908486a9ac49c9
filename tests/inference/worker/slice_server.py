"""A real HTTP server in a thread that serves one slice with Range, and goes wrong on order."""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from inference.slices import SliceManifest
from tests.inference.worker import local_http
from tests.inference.worker.local_http import QuietHandler

MANIFEST_URL = "/api/slices/demo/manifest"
SLICE_URL = "/api/slices/demo"

Fault = Callable[["Handler", bytes], None]


@dataclass
class SliceServer:
    """`faults`: one entry per request for a piece, taken from the left; None answers as asked."""

    data: bytes
    manifest: SliceManifest
    url: str = ""
    faults: deque[Fault | None] = field(default_factory=deque)
    ranges: list[tuple[int, int]] = field(default_factory=list)
    authorizations: list[str | None] = field(default_factory=list)


class Handler(QuietHandler):
    state: SliceServer

    def do_GET(self) -> None:
        self.state.authorizations.append(self.headers.get("Authorization"))
        if self.path == MANIFEST_URL:
            self.answer(200, self.state.manifest.to_json().encode())
            return
        start, end = self.piece()
        self.state.ranges.append((start, end))
        fault = self.state.faults.popleft() if self.state.faults else None
        body = self.state.data[start:end]
        if fault is None:
            self.answer(206, body)
        else:
            fault(self, body)


def truncated(handler: Handler, body: bytes) -> None:
    handler.answer(206, body[: len(body) // 2], length=len(body))
    handler.close_connection = True


def wrong_byte(handler: Handler, body: bytes) -> None:
    handler.answer(206, bytes([body[0] ^ 1]) + body[1:])


def too_long(handler: Handler, body: bytes) -> None:
    handler.answer(206, body + b"!")


def server_error(handler: Handler, body: bytes) -> None:
    handler.answer(500, b"<html>oops</html>")


def no_range(handler: Handler, body: bytes) -> None:
    handler.answer(200, handler.state.data)


def refused(handler: Handler, body: bytes) -> None:
    handler.answer(403, b'{"error": {"code": "not_claimed", "message": "claim this range first"}}')


def hangs(handler: Handler, body: bytes) -> None:
    handler.answer(206, body[:10], length=len(body))
    time.sleep(1.0)
    handler.close_connection = True


def broken_off(handler: Handler, body: bytes) -> None:
    handler.close_connection = True


@contextlib.contextmanager
def serving(state: SliceServer) -> Iterator[SliceServer]:
    """Serve on a free loopback port; `state.url` is the address."""
    with local_http.serving(Handler, state=state) as state.url:
        yield state
