"""Real processes for tests: started in a session of their own, so that whatever they leave behind can be found."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Running:
    """A process, the session it leads and the file that takes its output."""

    process: "subprocess.Popen[bytes]"
    log: Path

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def session_members(self) -> list[psutil.Process]:
        """Every living process of the session, the leader too; zombies are dead."""
        members = []
        for process in psutil.process_iter():
            try:
                if os.getsid(process.pid) == self.process.pid and process.status() != psutil.STATUS_ZOMBIE:
                    members.append(process)
            except (ProcessLookupError, psutil.NoSuchProcess):
                continue  # it ended while we looked
        return members

    def wait_for(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """Fails with the end of the output when the condition does not come true, or the process ends before."""
        deadline = time.monotonic() + seconds
        while not condition():
            ended = self.process.poll()
            assert ended is None, f"ended with {ended} before: {what}\n{self.output[-4000:]}"
            assert time.monotonic() < deadline, f"not within {seconds} s: {what}\n{self.output[-4000:]}"
            time.sleep(0.1)

    def end(self, number: signal.Signals, seconds: float) -> int:
        """Signals the leader alone and returns its exit status; raises TimeoutExpired."""
        self.process.send_signal(number)
        return self.process.wait(seconds)


@contextmanager
def running(command: list[str], log: Path, environment: dict[str, str]) -> Iterator[Running]:
    """Runs `python COMMAND...` in the tree; kills what is left of its session at the end of the block."""
    inherited = {name: value for name, value in os.environ.items() if name not in {"REDIS_URL", "DATABASE_URL"}}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            env={**inherited, "PYTHONUNBUFFERED": "1", **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    started = Running(process, log)
    try:
        yield started
    finally:
        for member in started.session_members():
            member.kill()
        process.wait()
