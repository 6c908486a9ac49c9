"""A real HTTP server in a thread that plays the market: scripted answers, recorded requests."""

import contextlib
import json
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Asked:
    """A request as it arrived."""

    method: str
    path: str
    body: Any
    authorization: str | None


@dataclass
class MarketServer:
    """`answers`: (status, body) per request, taken from the left; None cuts the line. The last one stays."""

    answers: deque[tuple[int, Any] | None] = field(default_factory=deque)
    asked: list[Asked] = field(default_factory=list)
    url: str = ""

    def next_answer(self) -> tuple[int, Any] | None:
        return self.answers.popleft() if len(self.answers) > 1 else self.answers[0]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: MarketServer

    def _any(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = json.loads(raw) if raw else None
        self.state.asked.append(Asked(self.command, self.path, body, self.headers.get("Authorization")))
        answer = self.state.next_answer()
        if answer is None:
            self.close_connection = True
            return
        status, content = answer
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_DELETE = _any

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@contextlib.contextmanager
def market(*answers: tuple[int, Any] | None) -> Iterator[MarketServer]:
    """A market on a free loopback port that gives these answers."""
    state = MarketServer(deque(answers))
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("BoundHandler", (_Handler,), {"state": state}))
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
