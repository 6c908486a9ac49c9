"""The processes of a chaotic run: the server as `manage.py up` starts it, and workers that come and go.

All belong to sessions of their own, so that whatever they leave behind can be found (Linux: read from /proc).
"""

import contextlib
import json
import os
import random
import signal
import sqlite3
import ssl
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from config.supervisor import run_file
from inference.chaos.liar_worker import FIRST_LIE, LIES
from inference.chaos.target import StoredEvent

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS, STOP_SECONDS = 180.0, 90.0
MOST_WORKERS, LEAST_WORKERS = 5, 1
WORKER_EXPERTS = 80
# Requests that a patient liar answers rightly: more audits than trust takes.
PATIENCE = 40


class ChaosFailed(RuntimeError):
    """The run cannot go on; the message says where to look."""


def _environment(**changes: str) -> dict[str, str]:
    inherited = {name: text for name, text in os.environ.items() if name not in {"REDIS_URL", "DATABASE_URL"}}
    return {**inherited, "PYTHONUNBUFFERED": "1", **changes}


def session_members(leader: int) -> list[int]:
    """Living processes of the session, zombies left out."""
    members = []
    for entry in os.listdir("/proc"):
        if not entry.isdecimal():
            continue
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == leader and fields[0] != "Z":
                members.append(int(entry))
    return members


def resident_bytes(pid: int) -> int:
    """Anonymous memory of a process (mapped files left out); 0 when it is gone."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) << 10
    return 0


class Server:
    """`manage.py up` with traces and no local workers; a context manager that always leaves nothing behind."""

    def __init__(self, var_dir: Path, environment: dict[str, str]) -> None:
        self.var_dir = var_dir
        self.log = var_dir / "up.log"
        self._environment = _environment(VAR_DIR=str(var_dir), **environment)
        self._process: subprocess.Popen[bytes] | None = None
        self.tls: ssl.SSLContext | None = None
        self.exit_status: int | None = None
        self.leaked: list[int] = []

    def __enter__(self) -> "Server":
        command = [sys.executable, "manage.py", "up", "--workers", "0", "--port", "0", "--trace"]
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=self._environment, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + START_SECONDS
        while "Ready." not in self.log.read_text(errors="replace"):
            if self._process.poll() is not None or time.monotonic() > deadline:
                told = self.log.read_text(errors="replace")[-2000:]
                self.__exit__(None)
                raise ChaosFailed(f"the server did not start:\n{told}")
            time.sleep(0.2)
        return self

    def __exit__(self, *_: object) -> None:
        """Harmless after `stop`."""
        if self._process is not None:
            for pid in session_members(self._process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.wait()

    @property
    def run(self) -> run_file.RunFile:
        return run_file.read(self.var_dir)

    def hit(self, child: str, number: signal.Signals) -> int:
        """Signals a child of the server; its pid. The supervisor starts it again."""
        pid = self.run.pids.get(child, 0)
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return pid

    def stop(self) -> None:
        """Ctrl-C, as a user; notes the exit status and what is left of the session."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.exit_status = self._process.wait(STOP_SECONDS)
        self.leaked = session_members(self._process.pid)

    def events(self) -> list[StoredEvent]:
        with closing(sqlite3.connect(self.var_dir / "expertswarm.sqlite3")) as connection:
            rows = connection.execute("SELECT position, name, body FROM market_event ORDER BY position").fetchall()
        return [StoredEvent(position, name, json.loads(body)) for position, name, body in rows]

    def manage(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """A management command on the server's VAR_DIR."""
        return subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT, env=self._environment, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip


@dataclass
class WorkerProcess:
    """A worker of the crew. resume_at: when a hanging one is woken."""

    name: str
    process: "subprocess.Popen[bytes]"
    is_liar: bool
    resume_at: float | None = None


class Crew:
    """Workers that join, leave, hang, lie and die. A context manager. patience: right answers of a liar at first."""

    def __init__(self, server_url: str, folder: Path, seed: int, patience: int = 0) -> None:
        self._url, self._folder, self._patience = server_url, folder, patience
        self._chance = random.Random(seed)
        self._members: list[WorkerProcess] = []
        self._count = 0
        folder.mkdir(exist_ok=True)

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, *_: object) -> None:
        for member in self._members:
            self._signal(member, signal.SIGCONT)
            self._signal(member, signal.SIGTERM)
        deadline = time.monotonic() + 15.0
        for member in self._members:
            try:
                member.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                member.process.kill()
                member.process.wait()
        self._members.clear()

    @property
    def honest(self) -> list[WorkerProcess]:
        """Those that run and do not lie; hanging ones too."""
        return [member for member in self._members if not member.is_liar and member.process.poll() is None]

    def join(self, lie: str | None = None) -> None:
        self._count += 1
        name = f"crew-{self._count}"
        liar = ["-m", "inference.chaos.liar_worker", str(lie), str(self._patience)]
        program = liar if lie else ["-m", "inference.worker"]
        command = [
            *(sys.executable, *program, "--server", self._url, "--name", name, "--threads", "1"),
            *("--experts", str(WORKER_EXPERTS), "--state", str(self._folder / name)),
        ]
        with (self._folder / f"{name}.log").open("wb") as output:
            process = subprocess.Popen(
                command, cwd=ROOT, env=_environment(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1"),
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        self._members.append(WorkerProcess(name, process, is_liar=lie is not None))

    def lie(self, detail: float) -> None:
        """A new worker that lies; an earlier liar makes room."""
        for member in self._members:
            if member.is_liar:
                self._signal(member, signal.SIGKILL)
        self.join(sorted(LIES)[int(detail * len(LIES))])

    @property
    def liars_that_lied(self) -> int:
        """Some are killed, or get no work, before their first lie."""
        return sum(FIRST_LIE in log.read_text(errors="replace") for log in self._folder.glob("crew-*.log"))

    def leave(self) -> None:
        self._take(signal.SIGTERM)

    def kill(self) -> None:
        self._take(signal.SIGKILL)

    def hang(self, seconds: float) -> None:
        awake = [member for member in self.honest if member.resume_at is None]
        if awake:
            member = self._chance.choice(awake)
            self._signal(member, signal.SIGSTOP)
            member.resume_at = time.monotonic() + seconds

    def tick(self) -> None:
        """Wakes who has hung long enough; forgets who has ended; keeps at least one honest worker."""
        for member in self._members:
            if member.resume_at is not None and time.monotonic() >= member.resume_at:
                self._signal(member, signal.SIGCONT)
                member.resume_at = None
        self._members = [member for member in self._members if member.process.poll() is None]
        if len(self.honest) < LEAST_WORKERS:
            self.join()

    def _take(self, number: signal.Signals) -> None:
        """Signals one honest worker, and makes room for others."""
        if self.honest:
            member = self._chance.choice(self.honest)
            self._signal(member, signal.SIGCONT)
            self._signal(member, number)

    @staticmethod
    def _signal(member: WorkerProcess, number: signal.Signals) -> None:
        if member.process.poll() is None:
            member.process.send_signal(number)


def log_errors(folder: Path) -> dict[str, dict[str, int]]:
    """How often each exception was logged, per log file: figures for people (a killed Redis leaves some)."""
    found = {}
    for path in sorted(folder.glob("*.log")):
        counts: Counter[str] = Counter()
        is_inside = False
        for line in path.read_text(errors="replace").splitlines():
            if line.startswith("Traceback (most recent call last)"):
                is_inside = True
            elif is_inside and line and not line.startswith((" ", "\t")):
                is_inside = False
                counts[line[:160]] += 1
        if counts:
            found[path.name] = dict(counts)
    return found
