"""Databases to measure on: a SQLite file, and a new database on a PostgreSQL server, a private one if none is named."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import psycopg
from django.conf import settings
from django.core.management import call_command
from django.db import connections

INSTALL_HINT = "apt-get install -y postgresql, or set TEST_POSTGRES_URL or DATABASE_URL to a server that may be used"


@contextmanager
def default_database(entry: dict[str, Any]) -> Iterator[None]:
    """Makes `entry` the default database of this process until the block ends, in new threads too."""
    before, kept = connections.settings["default"], connections["default"]
    connections.settings["default"] = {**before, "OPTIONS": {}, **entry, "CONN_MAX_AGE": 0}
    del connections["default"]
    try:
        yield
    finally:
        connections["default"].close()
        connections.settings["default"] = before
        connections["default"] = kept


@contextmanager
def sqlite_database() -> Iterator[None]:
    """A new, migrated SQLite file in a temporary folder is the default database."""
    with tempfile.TemporaryDirectory(prefix="bench-market-") as folder:
        entry = {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": str(Path(folder) / "market.sqlite3"),
            "OPTIONS": _sqlite_options(),
        }
        with default_database(entry):
            call_command("migrate", verbosity=0)
            yield


def _sqlite_options() -> dict[str, Any]:
    """Those of config/settings.py when it uses SQLite, else the same again."""
    entry = settings.DATABASES["default"]
    if entry["ENGINE"].endswith("sqlite3") and entry.get("OPTIONS"):
        return dict(entry["OPTIONS"])
    pragmas = "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON;"
    return {"timeout": 30, "transaction_mode": "IMMEDIATE", "init_command": pragmas}


@contextmanager
def postgres_server() -> Iterator[str | None]:
    """The URL of a server on which databases may be made: given by the environment, or a private one, or None."""
    given = os.environ.get("TEST_POSTGRES_URL") or os.environ.get("DATABASE_URL", "")
    if given.startswith("postgres"):
        yield given
        return
    programs = _programs()
    if programs is None:
        yield None
        return
    with _private_cluster(programs) as url:
        yield url


def _programs() -> Path | None:
    """The folder of initdb and pg_ctl."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).parent if on_path else None


@contextmanager
def _private_cluster(programs: Path) -> Iterator[str]:
    """A throw-away server with PostgreSQL's own defaults for durability (fsync and synchronous_commit on)."""
    folder = Path(tempfile.mkdtemp(prefix="bench-postgres-"))
    owner: dict[str, Any] = {}
    if os.getuid() == 0:  # PostgreSQL refuses to run as root
        account = pwd.getpwnam("postgres")
        os.chown(folder, account.pw_uid, account.pw_gid)
        owner = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def run(program: str, *arguments: str) -> None:
        command = [str(programs / program), "-D", str(folder / "data"), *arguments]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, **owner)

    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder}"
    try:
        run("initdb", "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C")
        run("pg_ctl", "-l", str(folder / "log"), "-w", "-o", options, "start")
        try:
            yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
        finally:
            run("pg_ctl", "-m", "fast", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def postgres_database(url: str) -> Iterator[dict[str, Any]]:
    """A new, migrated database on the server is the default database; what psycopg needs to connect to it."""
    name = f"expertswarm_bench_{os.getpid()}"
    parts = urlsplit(url)
    where = {
        "host": parts.hostname or "",
        "port": parts.port or 5432,
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
    }
    entry = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": name,
        **{key.upper(): str(value) for key, value in where.items()},
    }
    with ExitStack() as stack:
        _run(url, f"CREATE DATABASE {name}")
        stack.callback(_run, url, f"DROP DATABASE {name} WITH (FORCE)")
        stack.enter_context(default_database(entry))
        call_command("migrate", verbosity=0)
        yield {"dbname": name, **where}


def _run(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(statement.encode())
