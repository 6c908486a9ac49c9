"""A whole server for tests, started as its users start it, and how they reach it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai

from config.supervisor import run_file
from config.supervisor.run_file import RunFile
from tests.e2e.processes import ROOT, Running, running

START_SECONDS = 150.0
STOP_SECONDS = 60.0
MODEL = "qwen35moe-demo"


@dataclass(frozen=True)
class LiveServer:
    """A running `manage.py up`. `run` is read anew each time: children that were restarted have new ids."""

    up: Running
    var_dir: Path
    http: httpx.Client

    @property
    def run(self) -> RunFile:
        return run_file.read(self.var_dir)

    def client(self, **options: Any) -> openai.OpenAI:
        """The official client, without its own retries: a test wants to see the first answer."""
        return openai.OpenAI(base_url=f"{self.run.url}/v1", api_key=self.run.api_key, max_retries=0, **options)

    def stats(self) -> dict[str, Any]:
        found: dict[str, Any] = self.http.get("/api/stats").json()
        return found

    def generation(self, generation_id: str) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.run.api_key}"}
        found: dict[str, Any] = self.http.get(f"/v1/generations/{generation_id}", headers=headers).json()
        return found

    def kill(self, child: str) -> None:
        os.kill(self.run.pids[child], signal.SIGKILL)

    def wait_for(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        self.up.wait_for(condition, seconds, what)

    def manage(self, *arguments: str) -> "subprocess.Popen[str]":
        """A management command as a user runs it in another terminal."""
        return subprocess.Popen(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env={**os.environ, "VAR_DIR": str(self.var_dir)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@contextmanager
def live_server(folder: Path, *arguments: str, **environment: str) -> Iterator[LiveServer]:
    """Starts `up` on a free port with its own VAR_DIR and stops it in order at the end of the block."""
    var_dir = folder / "var"
    command = ["manage.py", "up", "--port", "0", *arguments]
    with running(command, folder / "up.log", {"VAR_DIR": str(var_dir), **environment}) as up:
        up.wait_for(lambda: "\nReady.\n" in up.output, START_SECONDS, "the server is ready")
        with httpx.Client(base_url=run_file.read(var_dir).url, trust_env=False, timeout=30.0) as http:
            yield LiveServer(up, var_dir, http)
        assert up.end(signal.SIGINT, STOP_SECONDS) == 0, up.output


def seconds_until(condition: Callable[[], bool], limit: float) -> float:
    """How long it took until the condition was true; fails after `limit`."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < limit, f"not within {limit} s"
        time.sleep(0.02)
    return time.monotonic() - started
