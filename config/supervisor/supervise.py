"""Starts the processes of a plan in order, keeps them running, and stops them in the reverse order.

One thread, one loop: children are bound to the life of the thread that forks them (see `child.die_with_parent`).
"""

import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from config.supervisor.child import Child
from config.supervisor.plan import ChildSpec, Stage

TICK_SECONDS = 0.1
LOG_LOOK_SECONDS = 5.0
# A child that ends this often before the server is ready will not get better by waiting.
MOST_START_FAILURES = 3
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StartFailed(RuntimeError):
    """The server did not become ready; the message holds the end of the log that tells why."""


class StopRequested(Exception):
    """A signal asked to stop while the server was still starting."""


class Supervisor:
    """`say` prints one line for the user; `on_change` is called whenever a child has a new process id."""

    def __init__(self, logs: Path, base_dir: Path, say: Callable[[str], None]) -> None:
        self.children: list[Child] = []
        self.on_change: Callable[[], None] = lambda: None
        self._logs, self._base_dir, self._say = logs, base_dir, say
        self._stops_asked = 0
        self._ready = False
        self._next_log_look = 0.0

    @contextmanager
    def signals_handled(self) -> Iterator[None]:
        """SIGINT, SIGTERM and SIGHUP ask to stop; a second one stops without waiting."""
        previous = {number: signal.signal(number, self._on_signal) for number in STOP_SIGNALS}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stops_asked += 1

    @property
    def pids(self) -> dict[str, int]:
        return {child.spec.name: child.pid for child in self.children if child.pid is not None}

    def start(self, specs: Iterable[ChildSpec]) -> None:
        """Starts children; raises OSError when a program cannot be run."""
        for spec in specs:
            child = Child(spec, self._logs, self._base_dir)
            self.children.append(child)
            child.start(time.monotonic())

    def wait_until(self, is_ready: Callable[[], bool], what: str, timeout_seconds: float, suspect: str) -> None:
        """Runs the loop until `is_ready`; raises StopRequested, or StartFailed with the end of the log of `suspect`."""
        deadline = time.monotonic() + timeout_seconds
        while not is_ready():
            self.step()
            if self._stops_asked:
                raise StopRequested
            if time.monotonic() > deadline:
                raise StartFailed(f"{what} was not ready within {timeout_seconds:g} s.\n{self._explain(suspect)}")
            time.sleep(TICK_SECONDS)

    def run(self) -> None:
        """Keeps the children running until a signal asks to stop."""
        self._ready = True
        while not self._stops_asked:
            self.step()
            time.sleep(TICK_SECONDS)

    def step(self) -> None:
        """One round: notices ended children, starts those that are due, bounds the logs; raises StartFailed."""
        now = time.monotonic()
        for child in self.children:
            code = child.poll()
            if code is not None:
                self._on_end(child, code, now)
            elif child.restarts.is_due(now):
                child.start(now)
                self._say(f"{child.spec.name} started again (pid {child.pid})")
                self.on_change()
        if now >= self._next_log_look:
            self._next_log_look = now + LOG_LOOK_SECONDS
            for child in self.children:
                child.bound_log()

    def _on_end(self, child: Child, code: int, now: float) -> None:
        delay = child.restarts.ended(now)
        name = child.spec.name
        if not self._ready and child.restarts.failures >= MOST_START_FAILURES:
            raise StartFailed(f"{name} ended {child.restarts.failures} times ({_reason(code)}).\n{self._explain(name)}")
        self._say(f"{name} ended ({_reason(code)}), starts again in {delay:g} s; its log: {child.log_path}")
        self.on_change()

    def _explain(self, name: str) -> str:
        for child in self.children:
            if child.spec.name == name:
                return f"The end of {child.log_path}:\n{child.log_tail()}"
        return f"Its logs: {self._logs}"

    def stop(self) -> None:
        """Stops the stages in reverse order: each child is asked, then killed with its group when its time is over."""
        asked_before = self._stops_asked
        for stage in sorted(Stage, reverse=True):
            members = [child for child in self.children if child.spec.stage is stage and child.pid is not None]
            for child in members:
                child.ask_to_stop()
            asked_at = time.monotonic()
            while members:
                members = [child for child in members if child.poll() is None]
                for child in members:
                    in_a_hurry = self._stops_asked > asked_before
                    if in_a_hurry or time.monotonic() > asked_at + child.spec.stop_seconds:
                        self._say(f"{child.spec.name} did not end in time and was killed")
                        child.kill()
                members = [child for child in members if child.pid is not None]
                time.sleep(TICK_SECONDS / 2)
        self.children.clear()


def _reason(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
