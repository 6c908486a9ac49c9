"""Messages of a ring as bytes: one codec for direct TCP and for the relay. Sans-I/O; little-endian.

Every message: header (24 bytes: kind u8, version u8, zero u16, number u32, ring 16 bytes), then a body:

    OPEN      5 x u32 context settings, u16 addresses, per address u16 length and ASCII   -> OPENED or FAILED
    OPENED    u16 stages, per stage 38 bytes (see `STAGE`)
    DESCRIBE  nothing                                                                     -> OPENED with one stage
    ATTACH    nothing: answers of this ring come back on this connection                  -> OPENED without stages
    STEP      u16 operations, u16 seconds, u8 content, 3 zero bytes, u32 rows, u32 columns, then 9 bytes per operation
              (kind u8, source i32, target i32), f32 seconds, i32 positions, i32 sequences, i8 wants_logits (rows each),
              i32 tokens (rows) or f32 hidden (rows, columns)                             -> ANSWER or FAILED
    ANSWER    i32 code, u16 seconds, u8 content, zero u8, u32 rows, u32 columns, f32 seconds, f32 values (rows, columns)
    FAILED    u16 stage, u16 length of the code, u16 length of the message, both as UTF-8
    CLOSE     nothing

`seconds`: what each stage so far took to compute. All sizes are checked before any array is made; `read_message` raises
BadStep for any other bytes, and nothing else.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from inference.llama import ContextSettings
from inference.ring.errors import BadStep

VERSION = 1
MAX_ROWS, MAX_COLUMNS, MAX_OPERATIONS, MAX_STAGES = 1 << 14, 1 << 20, 1 << 12, 256
MAX_MESSAGE_BYTES = 1 << 29
MAX_ADDRESS_BYTES, MAX_CODE_BYTES, MAX_REASON_BYTES = 256, 64, 1024
SETTING_LIMIT = 1 << 24

HEADER = struct.Struct("<BBHI16s")
SETTINGS = struct.Struct("<5I")
COUNT = struct.Struct("<H")
STEP = struct.Struct("<HHB3xII")
ANSWER = struct.Struct("<iHBxII")
FAILED = struct.Struct("<3H")
# A stage: fingerprint of the model (16 bytes), layers first, last (behind it) and total, embedding and vocabulary size,
# flags (1: it has the expert tensors of its layers).
STAGE = struct.Struct("<16s3H2IH6x")
OPERATION = np.dtype([("kind", np.uint8), ("source", "<i4"), ("target", "<i4")])

Int32s = npt.NDArray[np.int32]
Int8s = npt.NDArray[np.int8]
Floats = npt.NDArray[np.float32]


class MessageKind(IntEnum):
    OPEN = 1
    OPENED = 2
    DESCRIBE = 3
    ATTACH = 4
    STEP = 5
    ANSWER = 6
    FAILED = 7
    CLOSE = 8


class OperationKind(IntEnum):
    """What happens to the memory of a context before the batch; see `inference.llama.Context`."""

    REMOVE = 1
    MOVE = 2
    COPY = 3
    CLEAR = 4


class Content(IntEnum):
    """What a step or an answer carries."""

    NOTHING = 0
    TOKENS = 1
    HIDDEN = 2
    LOGITS = 3


class Operation(NamedTuple):
    """target: of MOVE and COPY, else 0."""

    kind: OperationKind
    source: int = 0
    target: int = 0


@dataclass(frozen=True)
class StageDescription:
    """What a stage holds: layers [first, last) of `layers`, of the model with this fingerprint (32 hex digits)."""

    fingerprint: str
    first: int
    last: int
    layers: int
    n_embd: int
    vocabulary_size: int
    has_experts: bool = True


@dataclass(frozen=True)
class Open:
    """Open a context for the ring; route: the addresses of the stages behind this one."""

    settings: ContextSettings
    route: tuple[str, ...] = ()


@dataclass(frozen=True)
class Opened:
    stages: tuple[StageDescription, ...] = ()


@dataclass(frozen=True)
class Describe:
    pass


@dataclass(frozen=True)
class Attach:
    pass


@dataclass(frozen=True)
class Close:
    pass


@dataclass(frozen=True)
class Step:
    """Operations, then a batch: positions, sequences (rows,) int32, wants_logits (rows,) int8, and either tokens
    (rows,) int32 or hidden (rows, n_embd) float32. seconds: of the stages that it has passed."""

    operations: tuple[Operation, ...]
    positions: Int32s
    sequences: Int32s
    wants_logits: Int8s
    tokens: Int32s | None = None
    hidden: Floats | None = None
    seconds: tuple[float, ...] = ()

    @property
    def rows(self) -> int:
        return len(self.positions)

    def onward(self, answer: Answer) -> Step:
        """The step for the next stage: the same with the hidden states of this one's answer."""
        assert answer.content is Content.HIDDEN
        return replace(self, tokens=None, hidden=answer.values, seconds=self.seconds + answer.seconds)


@dataclass(frozen=True)
class Answer:
    """code: of llama_decode; values: (rows, n_embd) hidden of all rows, (rows, n_vocab) logits of the wanted rows, or
    nothing when the code is not 0. seconds: of the stages that it tells of."""

    code: int
    content: Content = Content.NOTHING
    values: Floats = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    seconds: tuple[float, ...] = ()


@dataclass(frozen=True)
class Failed:
    """stage: which one in the ring, from 0."""

    stage: int
    code: str
    reason: str


Body = Open | Opened | Describe | Attach | Step | Answer | Failed | Close


class Message(NamedTuple):
    ring: bytes
    number: int
    body: Body


# --- writing ----------------------------------------------------------------------------------------------------------
def write_message(ring: bytes, number: int, body: Body) -> bytes:
    """One message. ring: 16 bytes; number: of the step, modulo 2**32."""
    kind, parts = _parts(body)
    header = HEADER.pack(kind, VERSION, 0, number & 0xFFFFFFFF, ring)
    return b"".join([header, *parts])


def _parts(body: Body) -> tuple[MessageKind, list[memoryview | bytes]]:
    match body:
        case Step():
            return MessageKind.STEP, _step_parts(body)
        case Answer():
            head = ANSWER.pack(body.code, len(body.seconds), body.content, *body.values.shape)
            return MessageKind.ANSWER, [head, _bytes(body.seconds, "<f4"), _bytes(body.values, "<f4")]
        case Failed():
            code, reason = body.code.encode()[:MAX_CODE_BYTES], body.reason.encode()[:MAX_REASON_BYTES]
            return MessageKind.FAILED, [FAILED.pack(body.stage, len(code), len(reason)), code, reason]
        case Open():
            settings = SETTINGS.pack(*body.settings.to_json().values())
            addresses = [address.encode("ascii") for address in body.route]
            texts = [COUNT.pack(len(text)) + text for text in addresses]
            return MessageKind.OPEN, [settings, COUNT.pack(len(texts)), *texts]
        case Opened():
            return MessageKind.OPENED, [COUNT.pack(len(body.stages)), *map(_stage_bytes, body.stages)]
        case Describe():
            return MessageKind.DESCRIBE, []
        case Attach():
            return MessageKind.ATTACH, []
        case Close():
            return MessageKind.CLOSE, []


def _step_parts(step: Step) -> list[memoryview | bytes]:
    content = Content.TOKENS if step.hidden is None else Content.HIDDEN
    columns = 0 if step.hidden is None else step.hidden.shape[1]
    payload = _bytes(step.tokens, "<i4") if step.hidden is None else _bytes(step.hidden, "<f4")
    return [
        STEP.pack(len(step.operations), len(step.seconds), content, step.rows, columns),
        np.array(list(step.operations), OPERATION).tobytes(),
        _bytes(step.seconds, "<f4"),
        _bytes(step.positions, "<i4"),
        _bytes(step.sequences, "<i4"),
        _bytes(step.wants_logits, "i1"),
        payload,
    ]


def _bytes(values: object, kind: str) -> memoryview | bytes:
    """The memory of an array: hidden states of a whole prompt are copied once, into the message."""
    array = np.ascontiguousarray(values, kind)
    return array.data.cast("B") if array.size else b""


def _stage_bytes(stage: StageDescription) -> bytes:
    return STAGE.pack(
        bytes.fromhex(stage.fingerprint), stage.first, stage.last, stage.layers, stage.n_embd, stage.vocabulary_size,
        stage.has_experts,
    )  # fmt: skip


# --- reading ----------------------------------------------------------------------------------------------------------
def read_message(data: bytes | bytearray) -> Message:
    """Raises BadStep. Arrays are views of `data`."""
    if len(data) < HEADER.size:
        raise BadStep(f"{len(data)} bytes are no message")
    kind, version, zero, number, ring = HEADER.unpack_from(data)
    if version != VERSION or zero != 0:
        raise BadStep(f"version {version} of the ring's messages; this program speaks {VERSION}")
    reader = _Reader(data, HEADER.size)
    match kind:
        case MessageKind.STEP:
            body: Body = _read_step(reader)
        case MessageKind.ANSWER:
            body = _read_answer(reader)
        case MessageKind.FAILED:
            body = _read_failed(reader)
        case MessageKind.OPEN:
            body = _read_open(reader)
        case MessageKind.OPENED:
            body = _read_opened(reader)
        case MessageKind.DESCRIBE:
            body = Describe()
        case MessageKind.ATTACH:
            body = Attach()
        case MessageKind.CLOSE:
            body = Close()
        case _:
            raise BadStep(f"message kind {kind}")
    reader.end()
    return Message(ring, number, body)


class _Reader:
    """Takes pieces of a message one by one; every method raises BadStep when it ends too early."""

    def __init__(self, data: bytes | bytearray, position: int) -> None:
        self._data, self._position = data, position

    def take(self, size: int) -> int:
        """Where the next `size` bytes begin."""
        start = self._position
        if size > len(self._data) - start:
            raise BadStep(f"the message ends {size - (len(self._data) - start)} bytes too early")
        self._position = start + size
        return start

    def fields(self, form: struct.Struct) -> tuple[Any, ...]:
        return form.unpack_from(self._data, self.take(form.size))

    def text(self, size: int, limit: int, encoding: str) -> str:
        if size > limit:
            raise BadStep(f"a text of {size} bytes, at most {limit}")
        start = self.take(size)
        try:
            # A reason may have been cut within a character.
            return self._data[start : start + size].decode(encoding, "strict" if encoding == "ascii" else "replace")
        except UnicodeDecodeError as error:
            raise BadStep("a text with bytes that are no ASCII") from error

    def array(self, count: int, kind: str | np.dtype[np.void]) -> npt.NDArray[np.generic]:
        form = np.dtype(kind)
        if count == 0:
            return np.zeros(0, form)
        return np.frombuffer(self._data, form, count, self.take(count * form.itemsize))

    def seconds(self, count: int) -> tuple[float, ...]:
        _limit("stages", count, MAX_STAGES)
        return tuple(float(one) for one in self.array(count, "<f4"))

    def end(self) -> None:
        if self._position != len(self._data):
            raise BadStep(f"{len(self._data) - self._position} bytes behind the end of the message")


def _limit(what: str, count: int, most: int, least: int = 0) -> None:
    if not least <= count <= most:
        raise BadStep(f"{count} {what}, allowed are {least} to {most}")


def _content(value: int, allowed: Sequence[Content]) -> Content:
    if value not in allowed:
        raise BadStep(f"content {value}")
    return Content(value)


def _read_step(reader: _Reader) -> Step:
    operations, seconds, content, rows, columns = reader.fields(STEP)
    _limit("operations", operations, MAX_OPERATIONS)
    _limit("rows", rows, MAX_ROWS, 1)
    kind = _content(content, (Content.TOKENS, Content.HIDDEN))
    _limit("columns", columns, MAX_COLUMNS if kind is Content.HIDDEN else 0, int(kind is Content.HIDDEN))
    changes = reader.array(operations, OPERATION)
    passed = reader.seconds(seconds)
    positions, sequences = (_int32(reader.array(rows, "<i4")) for _ in range(2))
    wants = reader.array(rows, "i1").astype(np.int8, copy=False)
    tokens = _int32(reader.array(rows, "<i4")) if kind is Content.TOKENS else None
    hidden = None if kind is Content.TOKENS else _float32(reader.array(rows * columns, "<f4"), rows, columns)
    return Step(tuple(map(_operation, changes.tolist())), positions, sequences, wants, tokens, hidden, passed)


def _operation(values: object) -> Operation:
    assert isinstance(values, tuple)
    kind, source, target = values
    if kind not in tuple(OperationKind) or source < 0 or target < 0:
        raise BadStep(f"operation {kind} on sequences {source}, {target}")
    return Operation(OperationKind(kind), source, target)


def _read_answer(reader: _Reader) -> Answer:
    code, seconds, content, rows, columns = reader.fields(ANSWER)
    kind = _content(content, (Content.NOTHING, Content.HIDDEN, Content.LOGITS))
    most = (0, 0) if kind is Content.NOTHING else (MAX_ROWS, MAX_COLUMNS)
    _limit("rows", rows, most[0])
    _limit("columns", columns, most[1])
    _limit("bytes of values", 4 * rows * columns, MAX_MESSAGE_BYTES)
    passed = reader.seconds(seconds)
    return Answer(code, kind, _float32(reader.array(rows * columns, "<f4"), rows, columns), passed)


def _read_failed(reader: _Reader) -> Failed:
    stage, code, reason = reader.fields(FAILED)
    return Failed(stage, reader.text(code, MAX_CODE_BYTES, "ascii"), reader.text(reason, MAX_REASON_BYTES, "utf-8"))


def _read_open(reader: _Reader) -> Open:
    settings = reader.fields(SETTINGS)
    for value in settings:
        _limit("as a context setting", value, SETTING_LIMIT, 1)
    (count,) = reader.fields(COUNT)
    _limit("stages", count, MAX_STAGES)
    route = tuple(reader.text(reader.fields(COUNT)[0], MAX_ADDRESS_BYTES, "ascii") for _ in range(count))
    return Open(ContextSettings(*settings), route)


def _read_opened(reader: _Reader) -> Opened:
    (count,) = reader.fields(COUNT)
    _limit("stages", count, MAX_STAGES)
    return Opened(tuple(_read_stage(reader) for _ in range(count)))


def _read_stage(reader: _Reader) -> StageDescription:
    fingerprint, first, last, layers, n_embd, vocabulary, flags = reader.fields(STAGE)
    if not first < last <= layers:
        raise BadStep(f"a stage of layers {first} to {last} of {layers}")
    return StageDescription(fingerprint.hex(), first, last, layers, n_embd, vocabulary, bool(flags & 1))


def _int32(values: npt.NDArray[np.generic]) -> Int32s:
    return values.astype(np.int32, copy=False)


def _float32(values: npt.NDArray[np.generic], rows: int, columns: int) -> Floats:
    return values.astype(np.float32, copy=False).reshape(rows, columns)
