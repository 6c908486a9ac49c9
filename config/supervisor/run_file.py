"""`VAR_DIR/run.json`: where the running server is, for the commands that use it. Standard library only.

Whoever runs a server holds an exclusive lock on `VAR_DIR/up.lock` as long as it lives; the system drops the lock with
the process, so a run.json without a lock is stale, whatever pid it names.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from config.supervisor.private_file import write_private

RUN_FILE = "run.json"
LOCK_FILE = "up.lock"
HOW_TO_START = "Start the server with `make run` (or `python manage.py up`)."
# A reader holds the lock for an instant when it looks whether a server runs; `acquire` outwaits it.
ACQUIRE_SECONDS = 1.0


class ServerNotRunning(RuntimeError):
    """No server runs on this VAR_DIR; the message says how to start one."""


class AlreadyRunning(RuntimeError):
    """Another `up` owns this VAR_DIR; the message names its pid."""


@dataclass(frozen=True)
class RunFile:
    """A running server. `pids`: one process id per child, by the child's name; `started`: ISO 8601 in UTC."""

    pid: int
    url: str
    port: int
    redis_url: str
    database_url: str
    api_key: str
    model: str
    started: str
    pids: dict[str, int] = field(default_factory=dict)


@contextmanager
def owned(var_dir: Path) -> Iterator[None]:
    """Owns VAR_DIR while the block runs, and removes run.json after it; raises AlreadyRunning."""
    with (var_dir / LOCK_FILE).open("a+") as lock:
        _acquire(lock.fileno(), var_dir)
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        try:
            yield
        finally:
            (var_dir / RUN_FILE).unlink(missing_ok=True)
            lock.truncate(0)


def _acquire(descriptor: int, var_dir: Path) -> None:
    deadline = time.monotonic() + ACQUIRE_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() < deadline:
                time.sleep(0.05)
                continue
            pid = (var_dir / LOCK_FILE).read_text().strip() or "unknown"
            raise AlreadyRunning(
                f"A server already runs on {var_dir} (pid {pid}). Stop it with `kill {pid}`, or set VAR_DIR to another "
                "folder to run a second one."
            ) from None
        return


def is_owned(var_dir: Path) -> bool:
    """Whether an `up` lives that owns this folder."""
    try:
        with (var_dir / LOCK_FILE).open("rb") as lock:
            fcntl.flock(lock.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def write(var_dir: Path, run: RunFile) -> None:
    """Replaces run.json in one step; only the owner can read it (it holds the development API key)."""
    write_private(var_dir / RUN_FILE, json.dumps(asdict(run), indent=2) + "\n")


def read(var_dir: Path) -> RunFile:
    """The server that runs on this VAR_DIR; raises ServerNotRunning when there is none or it is not ready yet."""
    path = var_dir / RUN_FILE
    if not is_owned(var_dir):
        raise ServerNotRunning(f"No server runs on {var_dir}. {HOW_TO_START}")
    try:
        values = json.loads(path.read_text())
        return RunFile(**{item.name: values[item.name] for item in fields(RunFile)})
    except FileNotFoundError:
        raise ServerNotRunning(f"The server on {var_dir} is still starting: try again when it is ready.") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ServerNotRunning(f"{path} cannot be read ({error}): restart the server. {HOW_TO_START}") from error
