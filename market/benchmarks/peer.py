"""The peer of `append`: the recorder of the `eventsourcing` library, a development requirement, on the same server."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from market import codec
from market.events import Event

NAME = "eventsourcing"


class Peer:
    """Appends batches as the library does: one aggregate's events, notification ids without gaps, one commit."""

    def __init__(self, recorder: Any, stored_event: Any) -> None:
        self._recorder, self._stored_event = recorder, stored_event
        self._versions: dict[UUID, int] = {}

    def append(self, originator: UUID, events: Sequence[Event]) -> None:
        first = self._versions.get(originator, 0) + 1
        self._versions[originator] = first + len(events) - 1
        self._recorder.insert_events(
            [
                self._stored_event(originator, first + index, event.NAME, json.dumps(codec.encode(event)).encode())
                for index, event in enumerate(events)
            ]
        )


@contextmanager
def peer(where: dict[str, Any]) -> Iterator[Peer | None]:
    """None where the library is not installed."""
    try:
        from eventsourcing.persistence import StoredEvent
        from eventsourcing.postgres import PostgresApplicationRecorder, PostgresDatastore
    except ImportError:
        yield None
        return
    with PostgresDatastore(**where, lock_timeout=30) as datastore:
        recorder = PostgresApplicationRecorder(datastore, events_table_name="peer_events")
        recorder.create_table()
        yield Peer(recorder, StoredEvent)
