"""The crash drill: one process runs a market command line by line and is killed at a chosen place, another repeats it.

    python -m tests.market.drill STORY DATABASE_URL FOLDER RESULT [STRIDE]

For n = 1, 2, 3 ...: a fresh copy of the start, a child that kills itself with SIGKILL at the nth place, then a child
that does the whole story again, as an operator or a device would after a restart, and checks the books. Places are
before and after every SQL statement, before and after every commit, and around the provider's file. The last n is the
one at which the story ends before the kill. RESULT gets a JSON object. Forked, so that Django starts once.
"""

import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import django
import psycopg
from django.core.management import call_command
from django.db import connection, connections

from tests.market.databases import drop_database


class Story(Protocol):
    """prepare: what was there before. run: the commands. repeat: run again, and raise if anything is wrong."""

    def prepare(self) -> None: ...
    def run(self, files: Path) -> None: ...
    def repeat(self, files: Path) -> None: ...


class KillPoint:
    """Counts places; at the chosen one the process dies as by a power cut: nothing is flushed, nobody is told."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.passed = 0

    def place(self) -> None:
        self.passed += 1
        if self.passed == self.at:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same function with a place before and after it."""

        def called(*arguments: Any, **named: Any) -> Any:
            self.place()
            result = call(*arguments, **named)
            self.place()
            return result

        return called

    def statement(self, execute: Callable[..., Any], *arguments: Any) -> Any:
        return self.around(execute)(*arguments)

    @contextmanager
    def everywhere(self) -> Iterator[None]:
        from market import payout_providers

        connection._commit = self.around(connection._commit)  # type: ignore[attr-defined]
        payout_providers._write_once = self.around(payout_providers._write_once)
        with connection.execute_wrapper(self.statement):
            yield


class Databases:
    """Copies of one start: a SQLite file, or a PostgreSQL database made from a template."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url, self._folder = url, folder

    def use(self, name: str) -> None:
        from config.settings import database

        url = f"{self._url.rpartition('/')[0]}/{name}" if self._url else f"sqlite:///{self._folder / name}"
        connections["default"].close()
        before = connections.settings["default"]
        connections.settings["default"] = {**before, "OPTIONS": {}, **database(url, self._folder), "CONN_MAX_AGE": 0}
        del connections["default"]

    def create(self, name: str) -> None:
        """An empty one; a file of SQLite comes into being by itself."""
        if self._url:
            with psycopg.connect(self._url, autocommit=True) as admin:
                admin.execute(f"CREATE DATABASE {name}".encode())

    def copy(self, source: str, target: str) -> None:
        if not self._url:
            for leftover in self._folder.glob(f"{target}-*"):
                leftover.unlink()
            shutil.copy(self._folder / source, self._folder / target)
            return
        self.drop(target)
        with psycopg.connect(self._url, autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {target} TEMPLATE {source}".encode())

    def drop(self, name: str) -> None:
        if self._url:
            drop_database(self._url, name)


def forked(work: Callable[[], None]) -> int:
    """Runs work in a child; its exit status, negative for the signal that ended it."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001 - the child must not run the parent's code
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def drill(story: Story, databases: Databases, folder: Path, stride: int) -> dict[str, Any]:
    """Kills at every stride-th place; how often, how many places there are, and where the end was not as it must be."""
    start, copy = f"drill_{os.getpid()}_start", f"drill_{os.getpid()}_copy"
    databases.create(start)
    databases.use(start)
    problems = [] if forked(lambda: _prepare(story)) == 0 else [0]
    killed, at = 0, 1
    while not problems:
        files = folder / f"files-{at}"
        databases.copy(start, copy)
        databases.use(copy)
        ended = forked(partial(_run, story, KillPoint(at), files))
        if ended not in (0, -signal.SIGKILL) or forked(partial(story.repeat, files)) != 0:
            problems.append(at)
        if ended == 0:
            break
        killed += 1
        at += stride
    databases.drop(copy)
    databases.drop(start)
    return {"killed": killed, "places": at - 1, "problems": problems}


def _prepare(story: Story) -> None:
    call_command("migrate", verbosity=0)
    story.prepare()
    # SQLite moves its write-ahead log into the file that will be copied.
    connection.close()


def _run(story: Story, point: KillPoint, files: Path) -> None:
    with point.everywhere():
        story.run(files)


def main(arguments: Sequence[str]) -> None:
    name, url, folder, result, stride = (*arguments, "1")[:5]
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()
    from tests.market import drill_stories

    report = drill(drill_stories.STORIES[name], Databases(url, Path(folder)), Path(folder), int(stride))
    Path(result).write_text(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1:])
