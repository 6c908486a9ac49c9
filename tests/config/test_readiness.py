"""config/supervisor/readiness.py: what counts as ready."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from config.supervisor.readiness import Readiness, ask, judge

FULL = {"engine": {"ready": True}, "workers": {"live": 3}, "experts": {"offered": 256, "live": 256}}


@contextmanager
def server(status: int, body: bytes) -> Iterator[str]:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    with HTTPServer(("127.0.0.1", 0), Answer) as web:
        thread = threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{web.server_port}"
        finally:
            web.shutdown()
            thread.join()


def test_a_server_that_holds_every_expert_is_covered() -> None:
    found = judge(200, FULL)

    assert found == Readiness(True, True, workers_live=3, experts_live=256, experts_offered=256)
    assert found.is_covered


@pytest.mark.parametrize("stats", [{}, {"engine": None, "experts": [], "workers": 3}, {"engine": {"ready": 1}}])
def test_stats_without_the_parts_are_not_ready(stats: dict[str, Any]) -> None:
    found = judge(200, stats)

    assert found.answers
    assert not found.backbone
    assert not found.is_covered


def test_a_backbone_from_before_is_dead_and_does_not_count() -> None:
    old, new = {"boot": "old", "started": 100.0}, {"boot": "new", "started": 200.0}

    assert not judge(200, {**FULL, "backbones": [old, new]}, since=150.0).backbone
    assert judge(200, {**FULL, "backbones": [new]}, since=150.0).backbone
    assert judge(200, {**FULL, "backbones": [old, new]}).backbone


def test_a_server_error_is_no_answer_and_a_missing_page_is_one() -> None:
    assert not judge(500, None).answers
    assert judge(404, None).answers


def test_it_asks_over_http() -> None:
    with server(200, json.dumps(FULL).encode()) as url:
        assert ask(url).is_covered
    with server(200, b"<html>") as url:
        assert ask(url) == Readiness()


def test_a_closed_port_is_not_ready() -> None:
    with server(200, b"{}") as url:
        pass

    assert ask(url) == Readiness()
