"""Frames: bytes in, frames out, and back. No I/O, no state, no meaning of bodies (`relay/messages.py` knows those).

A frame is a 32-byte little-endian header and a body of at most CHUNK_BYTES. Several frames may share one WebSocket
message; a message has at least one frame and at most MESSAGE_BYTES bytes. The first message of a connection starts
with one byte more, the role preamble (`Role`). `docs/protocol.md` holds the same tables.
"""

import struct
from collections import deque
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from relay.errors import FrameError, OversizeFrame, TruncatedFrame, UnknownFrame

PROTOCOL_VERSION = 1
# type u8, flags u8, layer u16, session u32, request u64, stream u32, rows u16, pairs u16, row dtype u8,
# result dtype u8, chunk u16, body bytes u32
HEADER = struct.Struct("<BBHIQIHHBBHI")
HEADER_BYTES = HEADER.size
CHUNK_BYTES = 512 * 1024
# Daphne drops the TCP connection, without a close code, for a message of more than 1 MiB.
MESSAGE_BYTES = 1024 * 1024 - 1
# Frames that wait for the same peer are joined up to this size: fewer messages, where a message costs more than a copy.
MESSAGE_TARGET_BYTES = 64 * 1024
_MAX_CHUNKS = 1 << 16

FLAG_MORE = 0x01
"""Further chunks of this body follow, in order, on the same connection."""
FLAG_RELAY = 0x02
"""Made by the relay itself, not by the session in the header; such a frame costs no credit."""
KNOWN_FLAGS = FLAG_MORE | FLAG_RELAY

Body = bytes | bytearray | memoryview


class Role(IntEnum):
    """The preamble: the first byte of the first message."""

    BACKBONE = 0x42
    STAGE = 0x53
    WORKER = 0x57


class FrameType(IntEnum):
    """The first header byte."""

    HELLO = 0x01
    WELCOME = 0x02
    REJECT = 0x03
    ROSTER = 0x04
    DISPATCH = 0x10
    CHALLENGE = 0x11
    CANCEL = 0x12
    RESULT = 0x13
    ERROR = 0x14
    CREDIT = 0x15
    STEP = 0x16
    PING = 0x20
    PONG = 0x21
    STATUS = 0x22
    DRAIN = 0x23


class RowDtype(IntEnum):
    """How hidden rows are written: float32, or the blocks that an expert's dot product takes: Q8 (per 256 values a
    float32 scale and 256 int8), Q8_0 (per 32 values a float16 scale and 32 int8)."""

    F32 = 0
    Q8 = 1
    Q8_0 = 2


class ResultDtype(IntEnum):
    """How results are written: one float32 row per pair, in the order of the pairs; or partial sums, one row per row of
    the request: the rows of its pairs times their weights, added up, as float32 or float16."""

    F32 = 0
    PARTIAL_F32 = 1
    PARTIAL_F16 = 2


class Frame(NamedTuple):
    """One frame; the fields are those of the header, in its order.

    A named tuple rather than a dataclass because one is made for every frame on the hot path (0.4 against 1.4 us).
    `body` of a decoded frame is a view into its message.
    """

    type: FrameType
    flags: int = 0
    layer: int = 0
    session: int = 0
    request: int = 0
    stream: int = 0
    rows: int = 0
    pairs: int = 0
    row_dtype: int = 0
    result_dtype: int = 0
    chunk: int = 0
    body: Body = b""


_TYPES = {int(kind): kind for kind in FrameType}


def encode_header(frame: Frame) -> bytes:
    """The 32 header bytes of a frame. Raises FrameError for a body above CHUNK_BYTES and for values that do not fit."""
    size = len(frame.body)
    if size > CHUNK_BYTES:
        raise OversizeFrame(f"a body of {size} bytes must be split into chunks of at most {CHUNK_BYTES}")
    if frame.flags & ~KNOWN_FLAGS:
        raise UnknownFrame(f"flags 0x{frame.flags:02x} are not defined in version {PROTOCOL_VERSION}")
    try:
        return HEADER.pack(*frame[:11], size)
    except struct.error as error:
        raise FrameError(f"a header field of this {frame.type!r} frame is out of range: {error}") from None


def encode_frame(frame: Frame) -> bytes:
    """Header and body: 32 + len(body) bytes. Raises FrameError for values that do not fit."""
    return b"".join((encode_header(frame), frame.body))


def decode_frames(message: Body) -> list[Frame]:
    """All frames of one message (without the preamble byte); at least one.

    Sizes are checked before anything is sliced. Raises FrameError, or a subclass, and nothing else for any bytes.
    """
    view = memoryview(message)
    end = len(view)
    if end > MESSAGE_BYTES:
        raise OversizeFrame(f"a message of {end} bytes; the limit is {MESSAGE_BYTES}")
    if not end:
        raise TruncatedFrame("an empty message")
    frames = []
    position = 0
    while position < end:
        if end - position < HEADER_BYTES:
            raise TruncatedFrame(f"{end - position} bytes left where a header takes {HEADER_BYTES}")
        fields: tuple[int, ...] = HEADER.unpack_from(view, position)
        kind, flags, size = fields[0], fields[1], fields[11]
        position += HEADER_BYTES
        frame_type = _TYPES.get(kind)
        if frame_type is None or flags & ~KNOWN_FLAGS:
            raise UnknownFrame(f"type 0x{kind:02x} with flags 0x{flags:02x} is not in version {PROTOCOL_VERSION}")
        if size > CHUNK_BYTES:
            raise OversizeFrame(f"a body of {size} bytes; a chunk has at most {CHUNK_BYTES}")
        if size > end - position:
            raise TruncatedFrame(f"a body of {size} bytes where {end - position} are left")
        # _make: no keyword handling, a third of the time of Frame(...).
        frames.append(Frame._make((frame_type, *fields[1:11], view[position : position + size])))
        position += size
    return frames


def split_frame(frame: Frame) -> Iterator[Frame]:
    """The frame itself when its body fits into one chunk, else its chunks in order: all but the last of CHUNK_BYTES.

    Raises OversizeFrame for a body of more than 65,536 chunks.
    """
    size = len(frame.body)
    if size <= CHUNK_BYTES:
        yield frame
        return
    chunks = -(-size // CHUNK_BYTES)
    if chunks > _MAX_CHUNKS:
        raise OversizeFrame(f"a body of {size} bytes does not fit into {_MAX_CHUNKS} chunks")
    view = memoryview(frame.body)
    for index in range(chunks):
        more = FLAG_MORE if index < chunks - 1 else 0
        body = view[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES]
        yield frame._replace(flags=frame.flags | more, chunk=index, body=body)


def take_message(queue: deque[bytes], target: int = MESSAGE_TARGET_BYTES) -> bytes | None:
    """Takes encoded frames from the left and joins them to one message of at most `target` bytes.

    A larger frame travels alone; None when the queue is empty.
    """
    if not queue:
        return None
    parts = [queue.popleft()]
    size = len(parts[0])
    while queue and size + len(queue[0]) <= target:
        parts.append(queue.popleft())
        size += len(parts[-1])
    return parts[0] if len(parts) == 1 else b"".join(parts)
