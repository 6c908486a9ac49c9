"""A real HTTP server in a thread, on a free loopback port: what plays a server in the worker's tests stands on it."""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class QuietHandler(BaseHTTPRequestHandler):
    """Answers; says nothing on standard error."""

    protocol_version = "HTTP/1.1"

    def answer(self, status: int, content: Any, length: int | None = None) -> None:
        """content: bytes, or what becomes JSON. length: what the header says, where that is not the truth."""
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data) if length is None else length))
        self.end_headers()
        self.wfile.write(data)

    def body(self) -> Any:
        """The JSON of the request; None without a body."""
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return json.loads(raw) if raw else None

    def piece(self) -> tuple[int, int]:
        """The bytes [start, end) that the request's Range names."""
        start, last = (int(number) for number in self.headers["Range"].removeprefix("bytes=").split("-"))
        return start, last + 1

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed leaves broken connections behind; that is no news."""


@contextlib.contextmanager
def serving(handler: type[QuietHandler], **fields: object) -> Iterator[str]:
    """The address of a server whose handlers have these fields."""
    server = _Server(("127.0.0.1", 0), type("BoundHandler", (handler,), fields))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
