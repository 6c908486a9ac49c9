"""One supervised process: started in a group of its own, bound to its parent's life, its output in a bounded log file.

The decision when to start it again is `Restarts`, a state machine without clock or process.
"""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from config.supervisor.plan import ChildSpec

LOG_LIMIT_BYTES = 8 << 20
# Back-off between restarts: 0.5, 1, 2 ... 30 s; forgotten after the child has lived for STEADY_SECONDS.
FIRST_DELAY_SECONDS = 0.5
LONGEST_DELAY_SECONDS = 30.0
STEADY_SECONDS = 60.0
PR_SET_PDEATHSIG = 1


@dataclass
class Restarts:
    """When a child that ended may start again. Times: monotonic seconds."""

    failures: int = 0
    started_at: float | None = None
    next_start: float | None = None

    def started(self, now: float) -> None:
        self.started_at, self.next_start = now, None

    def ended(self, now: float) -> float:
        """Takes note of an end nobody asked for; returns the delay in seconds until the next start."""
        lived = now - self.started_at if self.started_at is not None else 0.0
        self.failures = 1 if lived >= STEADY_SECONDS else self.failures + 1
        delay = min(FIRST_DELAY_SECONDS * 2.0 ** (self.failures - 1), LONGEST_DELAY_SECONDS)
        self.started_at, self.next_start = None, now + delay
        return delay

    def is_due(self, now: float) -> bool:
        return self.next_start is not None and now >= self.next_start


def die_with_parent(parent: int) -> Callable[[], None]:
    """What a child does before it becomes its program: ask Linux for SIGKILL when the parent ends, however it ends.

    The signal follows the parent's *thread* that forked, so only a thread that lives as long as the process may start
    children. Elsewhere than on Linux a killed supervisor leaves its children behind.
    """
    if sys.platform != "linux":
        return lambda: None
    # Looked up before the fork: between fork and exec only the call itself is safe.
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def before_exec() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            # The parent ended before the request: no signal will come.
            os._exit(1)

    return before_exec


class Child:
    """The process of a spec. Not thread-safe: one loop owns it."""

    def __init__(self, spec: ChildSpec, logs: Path, base_dir: Path) -> None:
        self.spec = spec
        self.log_path = logs / f"{spec.name}.log"
        self.restarts = Restarts()
        self._base_dir = base_dir
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def start(self, now: float) -> None:
        """Raises OSError when the program cannot be run."""
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self.spec.command,
                env=dict(self.spec.environment),
                cwd=self._base_dir,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # A group of its own: Ctrl-C in the terminal reaches the supervisor alone, which then stops in order.
                process_group=0,
                preexec_fn=die_with_parent(os.getpid()),
            )
        self.restarts.started(now)

    def poll(self) -> int | None:
        """The return code of a child that has just ended (negative: the signal), once; else None."""
        if self._process is None:
            return None
        code = self._process.poll()
        if code is not None:
            self._kill_group(self._process.pid)
            self._process = None
        return code

    def ask_to_stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(self.spec.stop_signal)

    def kill(self) -> None:
        """Ends the child and whatever it started, at once; reaps it."""
        if self._process is not None:
            self._kill_group(self._process.pid)
            self._process.wait()
            self._process = None

    @staticmethod
    def _kill_group(group: int) -> None:
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            return  # nobody is left in the group

    def bound_log(self, limit_bytes: int = LOG_LIMIT_BYTES) -> None:
        """Moves a log beyond the limit to `NAME.log.1` and starts it anew; lines written meanwhile may be lost.

        The child keeps its open file, so the file is emptied in place; it was opened for appending, so the next line
        lands at the new end.
        """
        if self.log_path.exists() and self.log_path.stat().st_size > limit_bytes:
            with self.log_path.open("rb") as log:
                log.seek(-limit_bytes, os.SEEK_END)
                self.log_path.with_suffix(".log.1").write_bytes(log.read())
            os.truncate(self.log_path, 0)

    def log_tail(self, lines: int = 25) -> str:
        """The last lines that the child wrote."""
        if not self.log_path.exists():
            return ""
        with self.log_path.open("rb") as log:
            log.seek(-min(self.log_path.stat().st_size, 16 << 10), os.SEEK_END)
            return "\n".join(log.read().decode(errors="replace").splitlines()[-lines:])
