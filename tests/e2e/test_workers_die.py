"""The main job under churn: workers die one after another while a text is generated, and nothing shows."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from config.supervisor import run_file
from inference.backend import ExpertCall, SwarmBackend
from inference.engine import Engine
from inference.generation import GenerationRequest, TokenEvent
from inference.sampling import SamplingParameters
from tests.e2e.processes import ROOT, running
from tests.inference.models import DEMO_MODEL

pytestmark = pytest.mark.e2e

PROMPT, TOKENS = "In the beginning", 300
CREDITED_ROWS = """
    SELECT sum(json_extract(line.value, '$.rows'))
    FROM market_event, json_each(market_event.body, '$.work') AS line
    WHERE name = 'work-credited'
"""


def text_without_workers() -> str:
    """The greedy text of the same engine with every expert local."""
    backend = SwarmBackend.install(ExpertCall.compute_all)
    engine = Engine(DEMO_MODEL, lanes=2, sequences=16, context_tokens=1024, lane_context=backend.lane)
    engine.start()
    text: list[str] = []
    done = threading.Event()

    def on_event(event: TokenEvent) -> None:
        text.append(event.text)
        if event.finish is not None:
            done.set()

    prompt = tuple(engine.tokenize(PROMPT))
    engine.submit(GenerationRequest("1", prompt, SamplingParameters(temperature=0.0, max_tokens=TOKENS)), on_event)
    assert done.wait(120)
    engine.stop()
    return "".join(text)


class Server:
    """The running server as its users see it."""

    def __init__(self, var_dir: Path) -> None:
        self.run = run_file.read(var_dir)
        self._client = httpx.Client(
            base_url=self.run.url, headers={"Authorization": f"Bearer {self.run.api_key}"}, timeout=120
        )

    def close(self) -> None:
        self._client.close()

    def generate(self, kill: list[int]) -> str:
        """Streams one greedy text; sends SIGKILL to one worker of `kill` after every 60 pieces of text."""
        body = {
            "model": self._client.get("/v1/models").json()["data"][0]["id"],
            "prompt": PROMPT,
            "max_tokens": TOKENS,
            "temperature": 0,
            "stream": True,
        }
        text, pieces, left = "", 0, list(kill)
        with self._client.stream("POST", "/v1/completions", json=body) as answer:
            assert answer.status_code == 200
            for line in answer.iter_lines():
                if not line.startswith("data: ") or line == "data: [DONE]":
                    continue
                text += json.loads(line.removeprefix("data: "))["choices"][0]["text"]
                pieces += 1
                if left and pieces % 60 == 0:
                    os.kill(left.pop(0), signal.SIGKILL)
        assert not left
        return text

    def stats(self) -> dict[str, Any]:
        found: dict[str, Any] = self._client.get("/api/stats").json()
        return found


def test_texts_are_unchanged_books_balance_and_nothing_is_left_behind(tmp_path: Path) -> None:
    var_dir = tmp_path / "var"
    environment = {"VAR_DIR": str(var_dir), "CREDIT_WINDOW_SECONDS": "5", "SPOOL_SECONDS": "1"}
    expected = text_without_workers()
    command = ["manage.py", "up", "--workers", "3", "--port", "0"]
    with running(command, tmp_path / "up.log", environment) as up, ExitStack() as stack:
        up.wait_for(lambda: "Ready." in up.output, 150, "the server is ready")
        server = stack.enter_context(closing(Server(var_dir)))

        calm = server.generate(kill=[])
        workers = [server.run.pids[f"local-{number}"] for number in (1, 2, 3)]
        churned = server.generate(kill=workers)

        assert not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in workers)
        rows = wait_for_rows(server)
        assert up.end(signal.SIGINT, 90) == 0
        assert not up.session_members()
    assert calm == expected
    assert churned == expected
    assert rows["remote"] > 0.3 * sum(rows.values())
    with sqlite3.connect(var_dir / "expertswarm.sqlite3") as database:
        assert database.execute(CREDITED_ROWS).fetchone()[0] == rows["remote"]
    replay = subprocess.run(
        [sys.executable, "manage.py", "replay", "--check"],
        cwd=ROOT,
        env={**os.environ, "VAR_DIR": str(var_dir)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert replay.returncode == 0, replay.stdout + replay.stderr
    for log in sorted((var_dir / "logs").glob("*.log")):
        assert "Traceback" not in log.read_text(errors="replace"), log.read_text(errors="replace")[-3000:]


def wait_for_rows(server: Server) -> dict[str, int]:
    """The backbone's counts once they stand still: it reports every second."""
    seen: dict[str, int] = {}
    for _ in range(30):
        time.sleep(2)
        rows: dict[str, int] = server.stats()["rows"]
        if rows == seen:
            return rows
        seen = rows
    raise AssertionError("the counts never stood still")
