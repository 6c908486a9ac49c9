"""A real HTTP server in a thread that serves one slice with Range, and goes wrong on order."""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from inference.slices import SliceManifest

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


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: SliceServer

    def do_GET(self) -> None:
        self.state.authorizations.append(self.headers.get("Authorization"))
        if self.path == MANIFEST_URL:
            self.answer(200, self.state.manifest.to_json().encode())
            return
        start, last = (int(number) for number in self.headers["Range"].removeprefix("bytes=").split("-"))
        self.state.ranges.append((start, last + 1))
        fault = self.state.faults.popleft() if self.state.faults else None
        body = self.state.data[start : last + 1]
        if fault is None:
            self.answer(206, body)
        else:
            fault(self, body)

    def answer(self, status: int, body: bytes, length: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


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
    handler = type("BoundHandler", (Handler,), {"state": state})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
