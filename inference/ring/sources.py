"""Several ways to a ring: the stages of an operator by address, and those of the market through the relay."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import Protocol

from inference.llama import ContextSettings
from inference.ring.context import Line
from inference.ring.errors import RingError, RingIncomplete

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.25


class RingSource(Protocol):
    """`StageDirectory`, `LeasedStages`."""

    def has_ring(self) -> bool: ...

    def open_line(self, settings: ContextSettings, deadline: float) -> Line: ...


class RingSources:
    """The first source that has a whole ring is asked, then the next."""

    def __init__(self, sources: Sequence[RingSource]) -> None:
        self._sources = tuple(sources)
        self._stopping = threading.Event()

    def __bool__(self) -> bool:
        return bool(self._sources)

    def stop(self) -> None:
        """Ends the waiting of those who want a ring."""
        self._stopping.set()

    def has_ring(self) -> bool:
        return any(source.has_ring() for source in self._sources)

    def open_line(self, settings: ContextSettings, deadline: float) -> Line:
        """As `inference.ring.context.OpenLine`. Raises RingError."""
        while True:
            failure: RingError = RingIncomplete("no stages hold the whole model between them")
            for source in self._sources:
                try:
                    return source.open_line(settings, 0.0)  # one attempt: another source may have a ring already
                except RingError as error:
                    failure = error
            if time.monotonic() >= deadline or self._stopping.wait(RETRY_SECONDS):
                raise failure
            logger.debug("no ring yet: %s", failure)
