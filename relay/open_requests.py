"""What a backbone has asked its workers and not forgotten yet: which answers are expected, and what they say.

No I/O, no threads. An answer nobody asked for is told apart from a late one: the bytes of a late answer are granted
back to its worker, those of the other are not, so that whoever floods a backbone runs out of credit.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from relay.codes import LinkCode
from relay.errors import MessageError
from relay.frames import FLAG_MORE, Frame, FrameType, ResultDtype
from relay.messages import read_refusal, read_result, result_shape
from relay.records import SMALL_JSON_BYTES
from relay.work import Failed, OnDone, OnStepDone, Outcome, Result, StageAnswer, StepOutcome

# Cancelled requests that are remembered: a worker need not answer them.
CANCELLED_LIMIT = 4096
Key = TypeVar("Key", bound=Hashable)
# Takes the outcome of its kind of request: OnDone or OnStepDone.
Told = Callable[[Any], None]


@dataclass(slots=True)
class _Asked(Generic[Key]):
    """pairs, rows, result_dtype: of the request; a step has 0 pairs, its answer is not read here. on_done: None once
    cancelled. allowed_bytes: what the answer may still take. chunks: its body so far."""

    key: Key
    pairs: int
    rows: int
    n_embd: int
    result_dtype: int
    on_done: Told | None
    allowed_bytes: int
    chunks: bytearray | None = None
    next_chunk: int = 0


class Answer(NamedTuple):
    """`is_asked`: the frame belongs to a request of this worker. `on_done` and `outcome`: whom to tell what, if any."""

    is_asked: bool
    on_done: Told | None = None
    outcome: Outcome | StepOutcome | None = None


NOT_ASKED = Answer(is_asked=False)


class OpenRequests(Generic[Key]):
    """Requests by number; `key` names the worker's session."""

    def __init__(self) -> None:
        self._asked: dict[int, _Asked[Key]] = {}
        self._by_key: dict[Key, set[int]] = {}
        self._cancelled: dict[int, None] = {}

    def __len__(self) -> int:
        """Requests whose outcome somebody awaits."""
        return len(self._asked) - len(self._cancelled)

    def add(
        self,
        request: int,
        key: Key,
        pairs: int,
        n_embd: int,
        on_done: OnDone,
        *,
        rows: int = 0,
        result_dtype: int = ResultDtype.F32,
    ) -> int:
        """Returns how many bytes its answer may take."""
        count, kind = result_shape(result_dtype, rows, pairs)
        allowed = max(np.dtype(kind).itemsize * count * n_embd, SMALL_JSON_BYTES)
        self._add(request, _Asked(key, pairs, rows, n_embd, result_dtype, on_done, allowed))
        return allowed

    def add_step(self, request: int, key: Key, answer_bytes: int, on_done: OnStepDone) -> int:
        """Returns how many bytes its answer may take."""
        allowed = max(answer_bytes, SMALL_JSON_BYTES)
        self._add(request, _Asked(key, 0, 0, 0, ResultDtype.F32, on_done, allowed))
        return allowed

    def _add(self, request: int, asked: _Asked[Key]) -> None:
        self._asked[request] = asked
        self._by_key.setdefault(asked.key, set()).add(request)

    def cancel(self, request: int) -> Key | None:
        """Nobody awaits the outcome any more; the session to tell, or None when there is nothing to cancel."""
        asked = self._asked.get(request)
        if asked is None or asked.on_done is None:
            return None
        asked.on_done, asked.chunks = None, None
        self._cancelled[request] = None
        if len(self._cancelled) > CANCELLED_LIMIT:
            self._remove(next(iter(self._cancelled)))
        return asked.key

    def answer(self, key: Key, frame: Frame) -> Answer:
        """Takes RESULT (whole or chunk) or ERROR of the session `key`."""
        asked = self._asked.get(frame.request)
        if asked is None or asked.key != key:
            return NOT_ASKED
        asked.allowed_bytes -= len(frame.body)
        outcome: Outcome | StepOutcome | None
        if asked.allowed_bytes < 0:
            outcome = Failed(LinkCode.BAD_RESULT, "the answer is larger than what was asked for")
        elif asked.on_done is None:
            if frame.flags & FLAG_MORE:
                return Answer(is_asked=True)
            outcome = None
        else:
            try:
                outcome = _outcome(asked, frame)
            except MessageError as error:
                outcome = Failed(LinkCode.BAD_RESULT, str(error))
            if outcome is None:
                return Answer(is_asked=True)
        self._remove(frame.request)
        return Answer(asked.allowed_bytes >= 0, asked.on_done, outcome)

    def forget(self, key: Key) -> list[Told]:
        """The session is gone: all of its requests are forgotten; those who still awaited an outcome."""
        awaiting = []
        for request in sorted(self._by_key.get(key, ())):
            on_done = self._asked[request].on_done
            self._remove(request)
            if on_done is not None:
                awaiting.append(on_done)
        self._by_key.pop(key, None)
        return awaiting

    def keys(self) -> list[Key]:
        """Sessions that were asked something."""
        return list(self._by_key)

    def _remove(self, request: int) -> None:
        asked = self._asked.pop(request)
        self._by_key[asked.key].discard(request)
        self._cancelled.pop(request, None)


def _outcome(asked: _Asked[Key], frame: Frame) -> Outcome | StepOutcome | None:
    """What an answer says; None while chunks are missing. Raises MessageError for a body of the wrong shape."""
    if frame.type is FrameType.ERROR:
        refusal = read_refusal(frame)
        return Failed(refusal.code, refusal.message)
    more = frame.flags & FLAG_MORE
    if more or frame.chunk:
        if frame.chunk != asked.next_chunk:
            raise MessageError(f"chunk {frame.chunk} came where chunk {asked.next_chunk} was due")
        asked.chunks = asked.chunks or bytearray()
        asked.chunks += frame.body
        asked.next_chunk += 1
        if more:
            return None
        frame = frame._replace(body=asked.chunks)
    if not asked.pairs:
        return StageAnswer(bytes(frame.body))
    values = read_result(frame, asked.pairs, asked.n_embd, result_dtype=asked.result_dtype, row_count=asked.rows)
    return Result(values)
