"""`manage.py up` as a user meets it: everything real, on a free port, with the demo model and two local workers."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from config.supervisor import run_file
from tests.e2e.processes import ROOT, Running, running

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

START_SECONDS = 120.0
STOP_SECONDS = 90.0


class Server:
    """A running `up` and its VAR_DIR."""

    def __init__(self, up: Running, var_dir: Path) -> None:
        self.up, self.var_dir = up, var_dir

    @property
    def run(self) -> run_file.RunFile:
        return run_file.read(self.var_dir)

    def stats(self) -> dict[str, dict[str, object]]:
        with urllib.request.urlopen(f"{self.run.url}/api/stats", timeout=10) as answer:
            found: dict[str, dict[str, object]] = json.load(answer)
            return found

    def manage(self, *arguments: str, seconds: float = 120.0) -> "subprocess.CompletedProcess[str]":
        """Runs a management command as a user would in another terminal."""
        return subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env={**os.environ, "VAR_DIR": str(self.var_dir)},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def is_ready(self) -> bool:
        return re.search(r"^Ready\.$", self.up.output, re.MULTILINE) is not None


def start(var_dir: Path, log: Path) -> "Iterator[Server]":
    command = ["manage.py", "up", "--port", "0", "--workers", "2"]
    with running(command, log, {"VAR_DIR": str(var_dir)}) as up:
        server = Server(up, var_dir)
        up.wait_for(server.is_ready, START_SECONDS, "the server is ready")
        yield server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("up")
    yield from start(folder / "var", folder / "up.log")


def test_it_becomes_healthy_with_workers_that_hold_every_expert(server: Server) -> None:
    stats = server.stats()

    assert stats["engine"]["ready"] is True
    assert stats["workers"]["live"] == 2
    assert stats["experts"]["live"] == stats["experts"]["offered"] == 256
    assert "Warning" not in server.up.output
    with urllib.request.urlopen(f"{server.run.url}/readyz", timeout=10) as answer:
        assert answer.status == 200
    assert set(server.run.pids) == {"redis", "web", "upkeep", "backbone", "beat", "local-1", "local-2"}
    assert all(psutil.pid_exists(pid) for pid in server.run.pids.values())


def test_it_generates_a_text_with_the_command_that_it_prints(server: Server) -> None:
    command = re.search(r"manage\.py (generate .*)$", server.up.output, re.MULTILINE)
    assert command is not None

    result = server.manage("generate", "In the beginning", "--max-tokens", "16")

    assert 'generate "In the beginning"' in command[1]
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.split()) >= 5


def test_a_second_up_is_refused_and_told_the_pid_of_the_first(server: Server) -> None:
    result = server.manage("up", "--port", "0", seconds=30)

    assert result.returncode == 1
    assert f"pid {server.up.process.pid}" in result.stderr
    assert server.run.pid == server.up.process.pid


@pytest.mark.parametrize("name", ["upkeep", "local-1", "backbone", "web"])
def test_a_killed_child_is_started_again_and_the_server_goes_on(server: Server, name: str) -> None:
    before = server.run.pids[name]

    os.kill(before, signal.SIGKILL)
    server.up.wait_for(lambda: server.run.pids.get(name, before) != before, 30, f"{name} has a new pid")

    server.up.wait_for(lambda: has_engine(server), START_SECONDS, "the engine is ready again")
    result = server.manage("generate", "In the beginning", "--max-tokens", "4")
    assert result.returncode == 0, result.stderr + server.up.output[-2000:]
    assert f"{name} ended (signal SIGKILL)" in server.up.output


def has_engine(server: Server) -> bool:
    try:
        return server.stats()["engine"]["ready"] is True
    except OSError:
        return False


def test_ctrl_c_leaves_no_process_and_no_note(tmp_path: Path) -> None:
    for server in start(tmp_path / "var", tmp_path / "up.log"):
        assert len(server.up.session_members()) >= 8

        began = time.monotonic()
        status = server.up.end(signal.SIGINT, STOP_SECONDS)

        assert status == 0, server.up.output
        assert time.monotonic() - began < 30, server.up.output
        assert server.up.session_members() == []
        assert not (server.var_dir / "run.json").exists()
        assert "did not end in time" not in server.up.output
        refused = server.manage("generate", "In the beginning", seconds=30)
        assert refused.returncode != 0
        assert "make run" in refused.stderr


def test_a_killed_supervisor_takes_its_children_along_and_the_next_one_starts(tmp_path: Path) -> None:
    for server in start(tmp_path / "var", tmp_path / "up.log"):
        assert len(server.up.session_members()) >= 8

        server.up.end(signal.SIGKILL, 10)
        deadline = time.monotonic() + 10
        while server.up.session_members() and time.monotonic() < deadline:
            time.sleep(0.1)

        assert server.up.session_members() == []
    for server in start(tmp_path / "var", tmp_path / "again.log"):
        assert server.run.pid == server.up.process.pid
