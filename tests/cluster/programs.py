"""The programs of a test cluster, each a process of its own, and who starts them again: what systemd is elsewhere."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOOK_SECONDS = 0.2
STOP_SECONDS = 40.0


@dataclass
class Program:
    """A unit. stop_signal: asks it to end; is_wanted: started again when it ends by itself (Restart=always)."""

    name: str
    command: list[str]
    environment: Mapping[str, str]
    log: Path
    stop_signal: signal.Signals = signal.SIGTERM
    is_wanted: bool = False
    process: "subprocess.Popen[bytes] | None" = None
    statuses: list[int] = field(default_factory=list)

    def start(self) -> None:
        self.is_wanted = True
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self.command, cwd=ROOT, env=dict(self.environment), stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def hit(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def stop(self) -> int:
        """Asks it to end and returns its status; kills it, and what it left, when it does not."""
        self.is_wanted = False
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.hit(self.stop_signal)
        try:
            status = self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            status = -signal.SIGKILL
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()
        self.statuses.append(status)
        return status

    def tail(self, size: int = 3000) -> str:
        return self.log.read_text(errors="replace")[-size:] if self.log.exists() else ""


class Keeper:
    """Starts wanted programs again that ended by themselves; a thread until `stop`."""

    def __init__(self) -> None:
        self.programs: dict[str, Program] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="keeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def add(self, program: Program) -> Program:
        with self._lock:
            program.start()
            self.programs[program.name] = program
        return program

    def restart(self, name: str) -> int:
        """`systemctl restart`; the status that the old process ended with."""
        program = self.programs[name]
        program.is_wanted = False
        status = program.stop()
        with self._lock:
            program.start()
        return status

    def stop(self) -> dict[str, int]:
        """Everything, the last started first; the exit statuses."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        return {name: program.stop() for name, program in reversed(self.programs.items())}

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            with self._lock:
                for program in self.programs.values():
                    if program.is_wanted and not program.is_running():
                        program.start()


def wait_until(condition: object, seconds: float, what: str, keeper: Keeper) -> None:
    """Fails with the ends of all logs when the condition does not come true."""
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            logs = "\n".join(f"--- {name}\n{program.tail()}" for name, program in keeper.programs.items())
            raise AssertionError(f"not within {seconds:g} s: {what}\n{logs}")
        time.sleep(0.25)
