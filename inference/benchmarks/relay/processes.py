"""The processes of the bench: a server (Daphne or uvicorn) with both ends on it, and clients that obey."""

import json
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from inference.benchmarks.overhead import SideFailed

ROOT = Path(__file__).resolve().parents[3]
APPLICATION = "inference.benchmarks.relay.server:application"
START_SECONDS = 60.0
ANSWER_SECONDS = 120.0
PROGRAMS = {
    "daphne": ("--verbosity", "0", "--bind", "127.0.0.1", "--port"),
    "uvicorn": ("--log-level", "warning", "--host", "127.0.0.1", "--port"),
}


class Server(NamedTuple):
    """A server that listens."""

    port: int
    process: psutil.Process

    def cpu_seconds(self) -> float:
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def resident_bytes(self) -> int:
        return int(self.process.memory_info().rss)


@contextmanager
def serving(program: str, application: str = APPLICATION) -> Iterator[Server]:
    """Raises SideFailed when it does not listen in time."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    command = [sys.executable, "-m", program, *PROGRAMS[program], str(port), application]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=-1)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                raise SideFailed(program, "does not listen", process.communicate()[1].decode(errors="replace")[-2000:])
            time.sleep(0.1)
        yield Server(port, psutil.Process(process.pid))
    finally:
        process.kill()
        process.communicate()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Client:
    """A process that answers each line of JSON with one."""

    def __init__(self, process: "subprocess.Popen[str]", name: str) -> None:
        self._process = process
        self._name = name

    @property
    def pid(self) -> int:
        return self._process.pid

    def answer(self) -> dict[str, Any]:
        """Raises SideFailed when the process died instead, or says nothing: its partner may have died."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], ANSWER_SECONDS)[0]:
            raise SideFailed(self._name, f"gave no answer in {ANSWER_SECONDS:.0f} s", "")
        # What a dying library writes to standard output (ggml: the backtrace of an abort) is no answer.
        line = next((line for line in self._process.stdout if line.startswith("{")), "")
        if not line:
            errors = self._process.communicate()[1][-2000:]
            raise SideFailed(self._name, f"ended with status {self._process.returncode}", errors)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, **order: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self.answer()


@contextmanager
def client(module: str, *arguments: object) -> Iterator[Client]:
    """A running client that has said that it is ready. Raises SideFailed."""
    with obedient(f"inference.benchmarks.relay.{module}", *arguments) as found:
        yield found


@contextmanager
def obedient(module: str, *arguments: object) -> Iterator[Client]:
    """A process that has answered once, by itself, and then answers orders. Raises SideFailed."""
    with started(module, *arguments) as found:
        found.answer()
        yield found


@contextmanager
def started(module: str, *arguments: object) -> Iterator[Client]:
    """A process whose first answer nobody has waited for yet: many of them start at once."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield Client(process, " ".join(map(str, arguments)))
    finally:
        process.kill()
        process.communicate()
