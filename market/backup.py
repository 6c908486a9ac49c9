"""The event store in one file: written while the server runs, restored into an empty database of either vendor.

    gzip of JSON lines: a header, every event as it is stored, what no event holds (profiles, accounts, API keys) in
    Django's own serialisation, and an end line with the SHA-256 of all lines before it.

Read models are not in it: they are made again from the events, and must then show the balances that the header names.
"""

import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from django.apps import apps
from django.core import serializers
from django.core.serializers.base import DeserializationError
from django.db import models as django_models
from django.db import transaction
from django.utils import timezone

from market import replay, store
from market.errors import MarketError
from market.models import Event as EventRow
from market.models import Posting

FORMAT = 1
BATCH = 500
# Derived, or of no use elsewhere: running generations end with the server that ran them.
LEFT_OUT = {"contenttypes", "sessions", "admin", "auth.permission", "inference.generationjob", "market.event"}
FIELDS = tuple(field.attname for field in EventRow._meta.concrete_fields)

Line = dict[str, Any]


class BadBackup(MarketError):
    """The file is no whole backup, or not of this format."""

    code = "bad_backup"


class NotEmpty(MarketError):
    """A backup is restored into an empty database only: history is never merged or replaced."""

    code = "database_not_empty"


class BooksDiffer(MarketError):
    """The restored read models are not what the events and the header say."""

    code = "books_differ"
    status = 500


@dataclass(frozen=True)
class Summary:
    """What a backup holds. position: of its last event; books: microcredits by account, those of nodes by kind."""

    position: int
    others: int
    books: dict[str, int]
    sha256: str


def books() -> dict[str, int]:
    """Microcredits of every account, read from the postings."""
    sums = Posting.objects.values_list("account").annotate(total=django_models.Sum("amount_microcredits"))
    return {account: int(total) for account, total in sums.order_by("account")}


def write(path: Path, progress: Callable[[int], object] = lambda done: None) -> Summary:
    """Writes a new file, only its owner may read it: it holds who accounts belong to. Raises OSError, FileExistsError.

    The history only grows, so events up to the newest position are one consistent state without holding up writers.
    """
    with store.writing():  # the postings of the very position
        until, totals = store.last_position(), books()
    partial = path.with_name(f"{path.name}.partial")
    if path.exists():
        raise FileExistsError(f"{path} exists already")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as file:
        writer = _LineWriter(file)
        at = timezone.now().isoformat()
        writer.write({"format": FORMAT, "at": at, "position": until, "books": totals})
        for row in EventRow.objects.filter(position__lte=until).order_by("position").iterator(BATCH):
            writer.write({"event": {name: _plain(getattr(row, name)) for name in FIELDS}})
            progress(row.position)
        others = 0
        for text in _others():
            writer.write({"object": json.loads(text)})
            others += 1
        digest = writer.sha256
        writer.write({"end": digest})
    os.replace(partial, path)
    return Summary(until, others, totals, digest)


def restore(path: Path, progress: Callable[[int], object] = lambda done: None) -> Summary:
    """Fills an empty, migrated database, all or nothing; every read model is made from the events and checked.

    Raises BadBackup, NotEmpty, BooksDiffer, OSError, and what a replay raises.
    """
    refuse_unless_empty()
    with _lines(path) as lines, transaction.atomic():
        header = next(lines, None)
        if header is None:
            raise BadBackup("the file is empty")
        position, others, digest = _fill(lines, progress)
        if position != header["position"]:
            raise BadBackup(f"the header promises {header['position']} events, the file holds {position}")
        replay.rebuild()
        found = books()
        if found != header["books"]:
            raise BooksDiffer(f"restored books {found}, the backup's {header['books']}")
    return Summary(position, others, found, digest)


def refuse_unless_empty() -> None:
    """Raises NotEmpty, naming the table, when a row stands anywhere that a backup fills."""
    tables: list[type[django_models.Model]] = [EventRow, *_other_models()]
    for model in tables:
        if model._default_manager.exists():
            raise NotEmpty(f"{model._meta.label} has rows: restore into a new, migrated database")


def _fill(lines: Iterator[Line], progress: Callable[[int], object]) -> tuple[int, int, str]:
    """(last position, other rows, digest)."""
    waiting: list[EventRow] = []
    position = others = 0
    for line in lines:
        if "event" in line:
            waiting.append(_row(line["event"]))
            position += 1
            if waiting[-1].position != position:
                raise BadBackup(f"event {position} is missing")
            if len(waiting) == BATCH:
                EventRow.objects.bulk_create(waiting)
                waiting.clear()
                progress(position)
        elif "object" in line:
            others += 1
            _load(line["object"])
        else:
            EventRow.objects.bulk_create(waiting)
            return position, others, str(line["end"])
    raise BadBackup("the file ends before its end line")


def _row(values: Line) -> EventRow:
    """The row as it was, in its version of then: upcasters read it when it is folded."""
    try:
        return EventRow(**{**values, "recorded_at": datetime.fromisoformat(values["recorded_at"])})
    except (KeyError, TypeError, ValueError) as error:
        raise BadBackup(f"an event cannot be read: {error}") from error


def _load(data: Line) -> None:
    try:
        for item in serializers.deserialize("json", json.dumps([data])):
            item.save()
    except DeserializationError as error:
        raise BadBackup(f"{data.get('model')} cannot be read: {error}") from error


def _others() -> Iterator[str]:
    """What no event holds, one row each, referred-to rows before those that refer to them."""
    for model in _other_models():
        rows = model._default_manager.order_by("pk").iterator(BATCH)
        for row in rows:
            yield serializers.serialize("json", [row], use_natural_foreign_keys=True)[1:-1]


def _other_models() -> list[type[django_models.Model]]:
    derived = {model.table for model in replay.READ_MODELS}
    found = [
        model
        for model in apps.get_models()
        if model not in derived and not {model._meta.app_label, model._meta.label_lower} & LEFT_OUT
    ]
    return list(serializers.sort_dependencies([(None, found)]))


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


class _Sink(Protocol):
    def write(self, data: bytes, /) -> int: ...


class _LineWriter:
    """Lines of JSON, and the digest of those written so far."""

    def __init__(self, file: _Sink) -> None:
        self._file, self._digest = file, hashlib.sha256()

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def write(self, line: Line) -> None:
        data = json.dumps(line, separators=(",", ":"), sort_keys=True).encode() + b"\n"
        self._digest.update(data)
        self._file.write(data)


@contextmanager
def _lines(path: Path) -> Iterator[Iterator[Line]]:
    """The lines of a backup; the end line is handed out only when the digest is right. Raises BadBackup, OSError."""
    with gzip.open(path, "rb") as file:
        yield _checked(file)


def _checked(file: Any) -> Iterator[Line]:
    digest = hashlib.sha256()
    try:
        for number, data in enumerate(file):
            line = json.loads(data)
            if number == 0 and line.get("format") != FORMAT:
                raise BadBackup(f"format {line.get('format')!r} is not {FORMAT}")
            if "end" in line and line["end"] != digest.hexdigest():
                raise BadBackup("the file was changed or damaged: its digest is another")
            digest.update(data)
            yield line
    except (gzip.BadGzipFile, zlib.error, EOFError, ValueError, AttributeError) as error:
        raise BadBackup(f"this is no whole backup: {error}") from error
