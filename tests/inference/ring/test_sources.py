"""Where rings come from when there are several places to ask."""

import time

import pytest

from inference.llama import ContextSettings
from inference.ring.context import Line
from inference.ring.errors import RingError, RingIncomplete
from inference.ring.sources import RingSources
from inference.ring.steps import Answer, Step

SETTINGS = ContextSettings(sequence_tokens=64, sequences=1, batch_tokens=8, threads=1, outputs=1)


class OpenLine:
    def exchange(self, step: Step) -> Answer:
        return Answer(0)

    def close(self) -> None:
        pass


class Source:
    """Has a ring from its `from_attempt`-th question on."""

    def __init__(self, from_attempt: int) -> None:
        self._from_attempt, self.attempts = from_attempt, 0
        self.line = OpenLine()

    def has_ring(self) -> bool:
        return self.attempts + 1 >= self._from_attempt

    def open_line(self, settings: ContextSettings, deadline: float) -> Line:
        self.attempts += 1
        if self.attempts < self._from_attempt:
            raise RingIncomplete("layer 4 is missing")
        return self.line


def test_the_first_source_with_a_ring_gives_it() -> None:
    near, far = Source(1), Source(1)

    assert RingSources([near, far]).open_line(SETTINGS, 0.0) is near.line
    assert far.attempts == 0


def test_the_next_source_is_asked_where_the_first_has_none() -> None:
    near, far = Source(99), Source(1)
    sources = RingSources([near, far])

    assert sources.has_ring()
    assert sources.open_line(SETTINGS, 0.0) is far.line


def test_who_wants_a_ring_waits_until_some_source_has_one() -> None:
    near, far = Source(99), Source(3)

    assert RingSources([near, far]).open_line(SETTINGS, time.monotonic() + 30) is far.line


def test_it_says_what_is_missing_when_time_is_up() -> None:
    with pytest.raises(RingError, match="layer 4"):
        RingSources([Source(99)]).open_line(SETTINGS, 0.0)


def test_a_stop_ends_the_waiting() -> None:
    sources = RingSources([Source(99)])
    sources.stop()

    with pytest.raises(RingIncomplete):
        sources.open_line(SETTINGS, time.monotonic() + 60)


def test_no_source_is_no_ring() -> None:
    sources = RingSources([])

    assert not sources
    assert not sources.has_ring()
