"""A real HTTP server in a thread that plays the market: scripted answers, recorded requests."""

import contextlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.inference.worker.local_http import QuietHandler, serving


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


class _Handler(QuietHandler):
    state: MarketServer

    def _any(self) -> None:
        self.state.asked.append(Asked(self.command, self.path, self.body(), self.headers.get("Authorization")))
        answer = self.state.next_answer()
        if answer is None:
            self.close_connection = True
            return
        self.answer(*answer)

    do_GET = do_POST = do_DELETE = _any


@contextlib.contextmanager
def market(*answers: tuple[int, Any] | None) -> Iterator[MarketServer]:
    """A market on a free loopback port that gives these answers."""
    state = MarketServer(deque(answers))
    with serving(_Handler, state=state) as state.url:
        yield state
