"""The event store: one transaction decides, appends and projects; positions have no gaps.

    with store.writing() as writer:
        ... read models are read here, nobody else is writing ...
        writer.append([event, ...], expected={stream: version that was read}, key="idempotency key")

`writing` takes the append lock first: SQLite's IMMEDIATE transaction, behind a fair queue of this process's threads, or
an advisory transaction lock of PostgreSQL, which queues fairly by itself. So positions are handed out and committed in
the same order, and a reader that continues after position n never misses a late commit. The unique (stream, version)
stays the last word: a writer that bypassed the lock gets Conflict.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from django.db import IntegrityError, OperationalError, connection, transaction
from django.db.models import Max
from django.utils import timezone

from market import codec, projections
from market.errors import Busy, Conflict, KeyReused
from market.events import Event, Recorded, stream_of
from market.fair_lock import FairLock
from market.models import Event as EventRow

# Any constant will do, as long as nothing else in the database uses it as an advisory lock.
ADVISORY_LOCK = 0x6D61726B6574
LOCK_TIMEOUT_SECONDS = 30.0
APPEND_LIMIT = 1000
READ_CHUNK = 2000

# One statement places and writes an append, whatever its number of events: positions and versions are computed where
# they are kept, so that nothing is read first. PostgreSQL keeps its form as a function (migration 0006), whose plan
# outlives the statement: planning it again each time took longer than running it.
_APPEND = {
    "postgresql": "SELECT position, version FROM market_append(%s, %s, %s)",
    "sqlite": """
        INSERT INTO market_event (position, stream, version, append_position, name, schema_version, body,
                                  idempotency_key, recorded_at)
        SELECT head.position + 1 + item.key, item.value->>0,
               COALESCE((SELECT MAX(version) FROM market_event WHERE stream = item.value->>0), 0) + (item.value->>1),
               head.position + 1, item.value->>2, item.value->>3, item.value->>4,
               CASE WHEN item.key = 0 THEN asked.key END, asked.recorded_at
        FROM (SELECT %s AS document, %s AS key, %s AS recorded_at) AS asked,
             (SELECT COALESCE(MAX(position), 0) AS position FROM market_event) AS head,
             json_each(asked.document) AS item
        RETURNING position, version""",
}

_writers = FairLock()


@dataclass(frozen=True)
class Appended:
    """What an append did; `repeated` when the key was known and these are the events of the first time."""

    events: tuple[Recorded, ...]
    repeated: bool = False

    @property
    def position(self) -> int:
        """The id of the append: the position of its first event."""
        return self.events[0].position


class Writer:
    """Handed out by `writing`; useless outside of it."""

    def append(
        self, events: Sequence[Event], *, expected: Mapping[str, int] | None = None, key: str | None = None
    ) -> Appended:
        """Appends and projects, all or nothing.

        expected: the version of a stream at which the caller decided; raises Conflict when it has moved on.
        key: an idempotency key; known already, nothing is written and the first result is returned.
        """
        if not 0 < len(events) <= APPEND_LIMIT:
            raise ValueError(f"an append has 1 to {APPEND_LIMIT} events, not {len(events)}")
        if key is not None and (first := find(key)) is not None:
            if first.events[0].event.NAME != events[0].NAME:
                raise KeyReused(f"key {key!r} belongs to a {first.events[0].event.NAME!r}, not a {events[0].NAME!r}")
            return first
        recorded = record(events, expected or {}, key)
        for item in recorded:
            projections.project(item)
        return Appended(tuple(recorded))

    def version(self, stream: str) -> int:
        """The version of the stream's last event; 0 when it has none."""
        return EventRow.objects.filter(stream=stream).aggregate(last=Max("version"))["last"] or 0


def record(events: Sequence[Event], expected: Mapping[str, int], key: str | None) -> list[Recorded]:
    """Writes events into the history and into no table; `Writer.append` is this and the projections.

    To be called under the append lock. Raises Conflict when a stream of `expected` has moved on.
    """
    streams = [stream_of(event) for event in events]
    places = _write(events, streams, key)
    elsewhere = expected.keys() - set(streams)
    found = heads(elsewhere).versions if elsewhere else {}
    for stream, (_, version) in zip(streams, places, strict=True):
        found.setdefault(stream, version - 1)
    for stream, version in expected.items():
        if found[stream] != version:
            # The caller's transaction ends with this, and what was written ends with it.
            raise Conflict(
                f"stream {stream} is at version {found[stream]}, not {version}: somebody was first; "
                "read again and decide again"
            )
    first = places[0][0]
    return [
        Recorded(position, stream, version, first, event)
        for event, stream, (position, version) in zip(events, streams, places, strict=True)
    ]


@dataclass(frozen=True)
class Heads:
    """The newest position, and the version of each stream's last event; 0 where there is none."""

    position: int
    versions: dict[str, int]


def heads(streams: Collection[str]) -> Heads:
    """Both in one look-up."""
    names = list(streams)
    statement = "SELECT NULL, MAX(position) FROM market_event"
    if names:
        marks = ", ".join(["%s"] * len(names))
        statement += (
            f" UNION ALL SELECT stream, MAX(version) FROM market_event WHERE stream IN ({marks}) GROUP BY stream"
        )
    with connection.cursor() as cursor:
        cursor.execute(statement, names)
        found = dict(cursor.fetchall())
    return Heads(found.pop(None) or 0, {**dict.fromkeys(names, 0), **found})


def _write(events: Sequence[Event], streams: Sequence[str], key: str | None) -> list[tuple[int, int]]:
    """The (position, version) that each event got. Raises Conflict."""
    counts: Counter[str] = Counter()
    rows = []
    for stream, event in zip(streams, events, strict=True):
        counts[stream] += 1
        rows.append((stream, counts[stream], event.NAME, event.VERSION, codec.encode(event)))
    now = connection.ops.adapt_datetimefield_value(timezone.now())
    try:
        with connection.cursor() as cursor:
            cursor.execute(_APPEND[connection.vendor], [json.dumps(rows), key, now])
            # No order is promised for what a statement returns.
            return sorted(cursor.fetchall())
    except IntegrityError as problem:
        raise Conflict(f"somebody appended at the same time: {problem}") from problem


@contextmanager
def writing() -> Iterator[Writer]:
    """A transaction that holds the append lock from its beginning; raises Busy when the lock does not come in time."""
    queued = connection.vendor == "sqlite"
    if queued and not _writers.acquire(LOCK_TIMEOUT_SECONDS):
        raise Busy("the database is busy; try again in a moment")
    try:
        with ExitStack() as stack:
            try:
                stack.enter_context(transaction.atomic())
                if not queued:
                    _take_advisory_lock()
            except OperationalError as problem:
                raise Busy("another process holds the database; try again in a moment") from problem
            yield Writer()
    finally:
        if queued:
            _writers.release()


def _take_advisory_lock() -> None:
    with connection.cursor() as cursor:
        # One round trip: set_config comes first, and a wait for the lock reads the setting when it begins.
        cursor.execute(
            "SELECT set_config('lock_timeout', %s, true), pg_advisory_xact_lock(%s)",
            [str(int(LOCK_TIMEOUT_SECONDS * 1000)), ADVISORY_LOCK],
        )


def append(events: Sequence[Event], *, expected: Mapping[str, int] | None = None, key: str | None = None) -> Appended:
    """One append in a transaction of its own; for facts that need no decision."""
    with writing() as writer:
        return writer.append(events, expected=expected, key=key)


def last_position() -> int:
    """The newest position; 0 in an empty history."""
    return EventRow.objects.aggregate(last=Max("position"))["last"] or 0


def find(key: str) -> Appended | None:
    """The append that carried this idempotency key."""
    row = EventRow.objects.filter(idempotency_key=key).first()
    if row is None:
        return None
    rows = EventRow.objects.filter(
        position__range=(row.position, row.position + APPEND_LIMIT), append_position=row.position
    ).order_by("position")
    return Appended(tuple(to_recorded(item) for item in rows), repeated=True)


def to_recorded(row: EventRow) -> Recorded:
    """Raises UnknownEvent when this program cannot read the row."""
    event = codec.decode(row.name, row.schema_version, row.body)
    return Recorded(row.position, row.stream, row.version, row.append_position, event)


def history(after: int = 0, until: int | None = None) -> Iterator[Recorded]:
    """Events in order of position, read in chunks; `until` is included."""
    while True:
        rows = EventRow.objects.filter(position__gt=after).order_by("position")
        if until is not None:
            rows = rows.filter(position__lte=until)
        chunk = list(rows[:READ_CHUNK])
        for row in chunk:
            yield to_recorded(row)
        if len(chunk) < READ_CHUNK:
            return
        after = chunk[-1].position
