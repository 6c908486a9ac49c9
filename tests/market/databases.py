"""Real databases for tests that race or that compare vendors: a SQLite file, or a PostgreSQL database of their own.

TEST_POSTGRES_URL names a server on which the tests may create databases, for example
postgresql://postgres@127.0.0.1:5432/postgres. Each test gets a copy of a database that was migrated once.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit, urlunsplit

import psycopg
from django.core.management import call_command
from django.db import connection

from config.settings import database
from market.benchmarks.databases import default_database
from tests.requirements_check import need

POSTGRES_HINT = "apt-get install -y postgresql, start it and set TEST_POSTGRES_URL=postgresql://user@host:port/postgres"


class SqliteFiles:
    """Copies of one migrated file."""

    def __init__(self, folder: Path) -> None:
        self._template = folder / "template.sqlite3"
        with default_database(database(f"sqlite:///{self._template}", folder)):
            call_command("migrate", verbosity=0)

    @contextmanager
    def fresh(self, folder: Path) -> Iterator[None]:
        path = folder / "market.sqlite3"
        shutil.copy(self._template, path)
        with default_database(database(f"sqlite:///{path}", folder)):
            yield


class PostgresDatabases:
    """Copies of one migrated database, on the server of TEST_POSTGRES_URL."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._template = f"expertswarm_template_{os.getpid()}"
        self._run(f"CREATE DATABASE {self._template}")
        with default_database(database(self._named(self._template), Path())):
            call_command("migrate", verbosity=0)

    def close(self) -> None:
        drop_database(self._url, self._template)

    @contextmanager
    def fresh(self) -> Iterator[None]:
        name = f"expertswarm_test_{os.getpid()}"
        self._run(f"CREATE DATABASE {name} TEMPLATE {self._template}")
        try:
            with default_database(database(self._named(name), Path())):
                yield
        finally:
            drop_database(self._url, name)

    def _named(self, name: str) -> str:
        return urlunsplit(urlsplit(self._url)._replace(path=f"/{name}"))

    def _run(self, statement: str) -> None:
        with psycopg.connect(self._url, autocommit=True) as admin:
            admin.execute(statement.encode())


def drop_database(url: str, name: str, patience_seconds: float = 10.0) -> None:
    """Drops a database with all its connections; a vacuum of the server's own that is at work there ends soon."""
    until = time.monotonic() + patience_seconds
    while True:
        try:
            with psycopg.connect(url, autocommit=True) as admin:
                admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())
            return
        except (psycopg.errors.InsufficientPrivilege, psycopg.errors.ObjectInUse):
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def postgres_url() -> str:
    """TEST_POSTGRES_URL; skips, or fails under REQUIRE_ALL=1, where no server answers."""
    url = os.environ.get("TEST_POSTGRES_URL", "")
    need("a PostgreSQL server", url, POSTGRES_HINT)
    try:
        psycopg.connect(url, connect_timeout=5).close()
    except psycopg.OperationalError as problem:
        need(f"the PostgreSQL server of TEST_POSTGRES_URL ({problem})", False, POSTGRES_HINT)
    return url


def in_threads(count: int, work: Callable[[int], object], timeout_seconds: float = 60.0) -> None:
    """Runs work(0) .. work(count - 1) at once, each with its own connection; raises the first error.

    A thread that does not end in time is a deadlock and fails the test.
    """
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as problem:  # noqa: BLE001 - handed to the test's own thread
            errors.append(problem)
        finally:
            connection.close()

    threads = [Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout_seconds)
    assert not any(thread.is_alive() for thread in threads), "deadlock: a thread did not end in time"
    if errors:
        raise errors[0]
