"""A server of its own for pictures and browser tests: embedded Redis, a seeded SQLite file, Daphne on a free port."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from config import embedded_redis
from frontend.screenshots.scene import HOLD_SECONDS, READY

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS, STOP_SECONDS, ASK_SECONDS = 120.0, 10.0, 0.2


class NotStarted(RuntimeError):
    """A process of the demo server ended or stayed silent; the text ends with its log."""


@dataclass(frozen=True)
class Site:
    """url without a slash at the end. environment: that of its processes, for commands on the same stores."""

    url: str
    environment: dict[str, str]
    empty: bool


@contextmanager
def demo_site(folder: Path, *, empty: bool = False) -> Iterator[Site]:
    """Runs while the block runs. Raises NotStarted, NoRedisServer."""
    with embedded_redis.running(folder) as redis_url, (folder / "site.log").open("w+") as log:
        port = _free_port()
        url = f"http://127.0.0.1:{port}"
        environment = {
            **os.environ,
            "VAR_DIR": str(folder),
            "REDIS_URL": redis_url,
            "DATABASE_URL": f"sqlite:///{folder / 'demo.sqlite3'}",
            "PUBLIC_URL": url,
            "MODEL_FOLDERS": "models",
            "HOLD_SECONDS": str(HOLD_SECONDS),
            "DJANGO_SETTINGS_MODULE": "config.settings",
        }
        seed = (sys.executable, "-m", "frontend.screenshots.demo", *(["--empty"] if empty else []))
        web = (sys.executable, "-m", "daphne", "-b", "127.0.0.1", "-p", str(port), "config.asgi:application")
        processes: list[subprocess.Popen[str]] = []
        try:
            processes.append(_start(seed, environment, log, stdout=subprocess.PIPE))
            _wait_for_seed(processes[0], log)
            processes.append(_start(web, environment, log))
            _wait_for_web(processes[1], url, log)
            yield Site(url, environment, empty)
        finally:
            for process in reversed(processes):
                _end(process)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _start(
    command: tuple[str, ...], environment: dict[str, str], log: IO[str], stdout: int | None = None
) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=stdout or log, stderr=log, text=True
    )


def _wait_for_seed(process: "subprocess.Popen[str]", log: IO[str]) -> None:
    """Its first line, or its end."""
    if process.stdout is None or process.stdout.readline().strip() != READY:
        raise NotStarted(f"the database was not filled:\n{_tail(log)}")


def _wait_for_web(process: "subprocess.Popen[str]", url: str, log: IO[str]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/healthz", timeout=ASK_SECONDS * 10):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(ASK_SECONDS)
    raise NotStarted(f"the web server did not start:\n{_tail(log)}")


def _tail(log: IO[str]) -> str:
    log.flush()
    return Path(log.name).read_text()[-2000:]


def _end(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
