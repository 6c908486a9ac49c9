"""The clients of a chaotic run: each sends one request after another through the API and wants every answer whole."""

import ssl
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import httpx

from inference.api_client import ApiClient, ApiRefused, ApiUnreachable
from inference.errors import InferenceError

OPENINGS = (
    "In the beginning",
    "Once upon a time there was a",
    "The old man looked at the sea and said",
    "My dear sister, I have not written for",
    "Call me Ishmael. Some years ago",
    "To be, or not to be: that is",
    "Gentlemen of the Senate and of the House,",
    "It was a dark night when",
)
POOL = 48  # distinct requests; clients take them in turn
TOKENS = 40
START_ATTEMPTS = 120
ATTEMPT_DELAY_SECONDS = 0.5
LEAVE_EVERY = 13  # each so-manieth request is left by its client in the middle


@dataclass
class Tally:
    """What came of the requests. texts: by request number, each distinct text once."""

    finished: int = 0
    left: int = 0
    resumed: int = 0
    failures: list[str] = field(default_factory=list)
    texts: dict[int, set[str]] = field(default_factory=dict)
    slowest_seconds: float = 0.0


class ClientLeft(Exception):
    """A client closes its connection in the middle of an answer."""


def request_body(number: int, model: str, *, with_rings: bool = False) -> dict[str, Any]:
    """Request `number` of the pool, always the same. with_rings: every second one asks for a ring."""
    latency = {"latency": "low"} if with_rings and number % 2 else {}
    return latency | {
        "model": model,
        "prompt": OPENINGS[number % len(OPENINGS)],
        "max_tokens": TOKENS,
        "temperature": 0.8,
        "seed": number,
        "ignore_eos": True,
    }


class Load:
    """`clients` threads until `stop`; each ends its request first."""

    def __init__(
        self, url: str, api_key: str, clients: int, tls: ssl.SSLContext | None = None, *, with_rings: bool = False
    ) -> None:
        self.tally = Tally()
        self._with_rings = with_rings
        self._url, self._api_key, self._tls = url, api_key, tls
        self._next = 0
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        with self._client() as client:
            self._model = client.model()
        self._threads = [
            threading.Thread(target=self._run, name=f"client-{number}", daemon=True) for number in range(clients)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self, patience_seconds: float) -> int:
        """Lets every client end its request; how many have not within the time."""
        self._stopping.set()
        deadline = time.monotonic() + patience_seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return sum(thread.is_alive() for thread in self._threads)

    def texts(self, numbers: list[int]) -> dict[int, str]:
        """The texts of some requests, one after another: what a calm server says."""
        with self._client() as client:
            return {number: client.stream(self._body(number), lambda text: None).text for number in numbers}

    def _client(self) -> ApiClient:
        transport = None if self._tls is None else httpx.HTTPTransport(verify=self._tls)
        return ApiClient(self._url, self._api_key, transport)

    def _body(self, number: int) -> dict[str, Any]:
        return request_body(number, self._model, with_rings=self._with_rings)

    def _run(self) -> None:
        with self._client() as client:
            while not self._stopping.is_set():
                with self._lock:
                    turn, self._next = self._next, self._next + 1
                self._ask(client, turn)

    def _ask(self, client: ApiClient, turn: int) -> None:
        number, began, pieces = turn % POOL, time.monotonic(), 0
        leaves = turn % LEAVE_EVERY == LEAVE_EVERY - 1

        def on_text(text: str) -> None:
            nonlocal pieces
            pieces += 1
            if leaves and pieces == TOKENS // 4:
                raise ClientLeft

        for attempt in range(START_ATTEMPTS):
            try:
                progress = client.stream(self._body(number), on_text)
            except ClientLeft:
                with self._lock:
                    self.tally.left += 1
                return
            except (ApiRefused, ApiUnreachable) as error:
                # A server that restarts refuses new requests for a while: ask again. A begun answer must go on.
                if pieces or attempt == START_ATTEMPTS - 1:
                    self._fail(number, error)
                    return
                time.sleep(ATTEMPT_DELAY_SECONDS)
                continue
            break
        with self._lock:
            tally = self.tally
            if progress.finish == "length":
                tally.finished += 1
                tally.texts.setdefault(number, set()).add(progress.text)
            else:
                tally.failures.append(f"request {number} ended with {progress.finish}")
            tally.resumed += progress.resumed > 0
            tally.slowest_seconds = max(tally.slowest_seconds, time.monotonic() - began)

    def _fail(self, number: int, error: InferenceError) -> None:
        with self._lock:
            self.tally.failures.append(f"request {number}: {error.code}: {error}")
