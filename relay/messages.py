"""Frames with a meaning: one builder and one reader per kind, and the reassembly of bodies that came in chunks.

Readers take a whole frame (see `Reassembler`), check every size against the header before they touch an array, and
raise MessageError and nothing else. Arrays that they return are views of the frame's body where its alignment allows.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from relay.errors import MessageError
from relay.frames import FLAG_MORE, HEADER_BYTES, PROTOCOL_VERSION, Body, Frame, FrameType, ResultDtype, RowDtype
from relay.records import (
    HELLO_BYTES,
    SMALL_JSON_BYTES,
    Hello,
    Refusal,
    RosterChange,
    RosterSession,
    Status,
    Welcome,
    dump_json,
    load_json,
)

Rows = npt.NDArray[np.float32] | npt.NDArray[np.uint8]
Q8_VALUES = 256
Q8_BYTES = 4 + Q8_VALUES
# Row dtype: bytes of its smallest unit, values in it.
_ROW_UNITS = {int(RowDtype.F32): (4, 1), int(RowDtype.Q8): (Q8_BYTES, Q8_VALUES), int(RowDtype.Q8_0): (34, 32)}
_RESULT_TYPES = {int(ResultDtype.F32): "<f4", int(ResultDtype.PARTIAL_F32): "<f4", int(ResultDtype.PARTIAL_F16): "<f2"}
# fence u32, claim_id u64
LEASE = struct.Struct("<IQ")
PAIR_BYTES = 4
_CREDIT = struct.Struct("<I")
MAX_OPEN_BODIES = 1024
_ROSTER_TARGET_BYTES = 128 * 1024


def hello_frame(fields: Mapping[str, object]) -> Frame:
    """HELLO from the fields of docs/protocol.md; `protocol` is filled in. Raises MessageError when they do not fit."""
    body = dump_json({"protocol": PROTOCOL_VERSION, **fields})
    Hello.from_json(load_json(body, HELLO_BYTES))
    return Frame(FrameType.HELLO, body=body)


def read_hello(frame: Frame) -> Hello:
    return Hello.from_json(load_json(frame.body, HELLO_BYTES))


def welcome_frame(welcome: Welcome) -> Frame:
    return Frame(FrameType.WELCOME, session=welcome.session, stream=welcome.stream, body=dump_json(welcome.to_json()))


def read_welcome(frame: Frame) -> Welcome:
    return Welcome.from_json(load_json(frame.body, SMALL_JSON_BYTES))


def reject_frame(code: str, message: str) -> Frame:
    return Frame(FrameType.REJECT, body=dump_json({"code": code, "message": message}))


def error_frame(request: Frame, code: str, message: str, flags: int = 0) -> Frame:
    """ERROR that answers `request`: it goes back along the request's stream."""
    body = dump_json({"code": code, "message": message[:512]})
    return Frame(
        FrameType.ERROR, flags, request.layer, request.session, request.request, stream=request.stream, body=body
    )


def read_refusal(frame: Frame) -> Refusal:
    """Body of REJECT or ERROR."""
    return Refusal.from_json(load_json(frame.body, SMALL_JSON_BYTES))


def status_frame(fields: Mapping[str, object]) -> Frame:
    """STATUS from `replicas` (as in HELLO), `load`, `battery`. Raises MessageError when they do not fit."""
    body = dump_json(fields)
    Status.from_json(load_json(body, HELLO_BYTES))
    return Frame(FrameType.STATUS, body=body)


def read_status(frame: Frame) -> Status:
    return Status.from_json(load_json(frame.body, HELLO_BYTES))


def roster_frames(full: bool, joined: Sequence[RosterSession], left: Sequence[int] = ()) -> Iterator[Frame]:
    """One ROSTER change in as many frames as its size asks for; at least one, and only the first may be `full`."""
    entries: list[dict[str, Any]] = []
    size, first = 0, True
    for session in joined:
        entry = session.to_json()
        size += len(dump_json(entry))
        entries.append(entry)
        if size > _ROSTER_TARGET_BYTES:
            yield _roster_frame(full and first, entries, ())
            entries, size, first = [], 0, False
    if first or entries or left:
        yield _roster_frame(full and first, entries, left)


def _roster_frame(full: bool, entries: list[dict[str, Any]], left: Sequence[int]) -> Frame:
    return Frame(FrameType.ROSTER, body=dump_json({"full": full, "joined": entries, "left": list(left)}))


def read_roster(frame: Frame) -> RosterChange:
    return RosterChange.from_json(load_json(frame.body, len(frame.body)))


def ping_frame(token: bytes) -> Frame:
    """`token`: 8 bytes that the PONG returns."""
    return Frame(FrameType.PING, body=token)


def pong_frame(ping: Frame) -> Frame:
    return Frame(FrameType.PONG, body=bytes(ping.body))


def credit_frame(granted_bytes: int, *, session: int = 0, stream: int = 0) -> Frame:
    """CREDIT for what the other end sends: a backbone names the session that may send, a worker the stream."""
    return Frame(FrameType.CREDIT, session=session, stream=stream, body=_CREDIT.pack(granted_bytes))


def read_credit(frame: Frame) -> int:
    """Bytes granted, 32 to 2**32 - 1: no counted frame is smaller, and a flood of tiny grants would be free."""
    if len(frame.body) != _CREDIT.size:
        raise MessageError(f"CREDIT takes {_CREDIT.size} bytes, not {len(frame.body)}")
    granted: int = _CREDIT.unpack(frame.body)[0]
    if granted < HEADER_BYTES:
        raise MessageError(f"CREDIT must grant at least {HEADER_BYTES} bytes")
    return granted


def cancel_frame(request: int, *, session: int = 0, stream: int = 0) -> Frame:
    """CANCEL one request; request 0, which only the relay sends, cancels all of the stream: its backbone is gone."""
    return Frame(FrameType.CANCEL, session=session, request=request, stream=stream)


def row_bytes(row_dtype: int, n_embd: int) -> int:
    """Bytes of one row of `n_embd` values on the wire. Raises MessageError when the type cannot hold that width."""
    unit, values = _ROW_UNITS.get(row_dtype, (0, 1))
    if not unit or n_embd <= 0 or n_embd % values:
        raise MessageError(f"rows of {n_embd} values cannot be written as row dtype {row_dtype}")
    return n_embd // values * unit


def row_width(row_dtype: int, size_bytes: int) -> int:
    """Values in one row of `size_bytes` bytes: the inverse of `row_bytes`. Raises MessageError when nothing fits."""
    unit, values = _ROW_UNITS.get(row_dtype, (0, 0))
    if not unit or size_bytes <= 0 or size_bytes % unit:
        raise MessageError(f"{size_bytes} bytes are no row of row dtype {row_dtype}")
    return size_bytes // unit * values


class Lease(NamedTuple):
    """The claim under which a request is made: the first 12 bytes of DISPATCH and CHALLENGE."""

    fence: int
    claim_id: int


def read_lease(frame: Frame) -> Lease:
    """Only the first 12 body bytes, as the relay reads them. Raises MessageError when they are not all there."""
    if len(frame.body) < LEASE.size:
        raise MessageError(f"a request takes more than {LEASE.size} bytes")
    return Lease._make(LEASE.unpack_from(frame.body))


@dataclass(frozen=True)
class DispatchBody:
    """pairs (P, 2) uint16: row index, global expert number; rows (R, n_embd) float32 or (R, row bytes) uint8;
    weights (P,) float32 where partial sums are asked for."""

    fence: int
    claim_id: int
    pairs: npt.NDArray[np.uint16]
    rows: Rows
    weights: npt.NDArray[np.float32] | None = None


def dispatch_frame(
    *,
    layer: int,
    session: int,
    request: int,
    lease: Lease,
    pairs: npt.NDArray[np.uint16],
    rows: Rows,
    row_dtype: int = RowDtype.F32,
    kind: FrameType = FrameType.DISPATCH,
    result_dtype: int = ResultDtype.F32,
    weights: npt.NDArray[np.float32] | None = None,
) -> Frame:
    """DISPATCH or CHALLENGE, body 12 + 4 P (+ 4 P weights) + R x row bytes; arrays as in DispatchBody, C-contiguous.

    Weights belong to the partial result dtypes, and only to them.
    """
    assert (weights is None) == (result_dtype == ResultDtype.F32)
    factors = b"" if weights is None else np.asarray(weights, "<f4").tobytes()
    body = b"".join((LEASE.pack(*lease), pairs.tobytes(), factors, rows.tobytes()))
    return Frame(
        kind,
        layer=layer,
        session=session,
        request=request,
        rows=rows.shape[0],
        pairs=pairs.shape[0],
        row_dtype=row_dtype,
        result_dtype=result_dtype,
        body=body,
    )


def step_frame(*, layer: int, session: int, request: int, lease: Lease, rows: int, step: Body) -> Frame:
    """STEP: the lease, then `step`, which only stages and their coordinators read. rows: of its batch, 1 at least."""
    body = b"".join((LEASE.pack(*lease), step))
    return Frame(FrameType.STEP, layer=layer, session=session, request=request, rows=rows, pairs=1, body=body)


def read_step(frame: Frame) -> tuple[Lease, memoryview]:
    """The lease of a whole STEP and what follows it. Raises MessageError when nothing does."""
    lease = read_lease(frame)
    if len(frame.body) == LEASE.size:
        raise MessageError("a step is empty")
    return lease, memoryview(frame.body)[LEASE.size :]


def step_result_frame(request: Frame, answer: Body) -> Frame:
    """RESULT that answers a STEP: bytes that the coordinator reads."""
    return request._replace(type=FrameType.RESULT, flags=0, chunk=0, body=answer)


def read_dispatch(frame: Frame) -> DispatchBody:
    """The body of a whole DISPATCH or CHALLENGE. Raises MessageError."""
    lease = read_lease(frame)
    row_count, pair_count = frame.rows, frame.pairs
    is_partial = frame.result_dtype != ResultDtype.F32
    start = LEASE.size + PAIR_BYTES * pair_count * (2 if is_partial else 1)
    size = len(frame.body) - start
    if not row_count or not pair_count or size <= 0 or size % row_count:
        raise MessageError(f"{len(frame.body)} bytes do not hold {pair_count} pairs and {row_count} equal rows")
    row_width(frame.row_dtype, size // row_count)
    pairs = _array(frame.body, "<u2", 2 * pair_count, LEASE.size).reshape(pair_count, 2)
    if int(pairs[:, 0].max()) >= row_count:
        raise MessageError("a pair names a row that is not there")
    weights = _array(frame.body, "<f4", pair_count, LEASE.size + PAIR_BYTES * pair_count) if is_partial else None
    if frame.row_dtype == RowDtype.F32:
        rows = _array(frame.body, "<f4", size // 4, start)
    else:
        rows = _array(frame.body, "u1", size, start)
    return DispatchBody(lease.fence, lease.claim_id, pairs, rows.reshape(row_count, -1), weights)


def result_frame(request: Frame, values: npt.NDArray[np.float32] | npt.NDArray[np.float16]) -> Frame:
    """RESULT that answers `request` (DISPATCH or CHALLENGE): values (P, n_embd) float32, in the order of the pairs, or
    (R, n_embd) partial sums in the result dtype that was asked for."""
    return Frame(
        FrameType.RESULT,
        layer=request.layer,
        session=request.session,
        request=request.request,
        stream=request.stream,
        rows=request.rows,
        pairs=request.pairs,
        row_dtype=request.row_dtype,
        result_dtype=request.result_dtype,
        body=np.asarray(values, dtype=_RESULT_TYPES[request.result_dtype]).tobytes(),
    )


def result_shape(result_dtype: int, rows: int, pairs: int) -> tuple[int, str]:
    """(rows of the result, numpy type of its values). Raises MessageError for a result dtype that is not defined."""
    kind = _RESULT_TYPES.get(result_dtype)
    if kind is None:
        raise MessageError(f"result dtype {result_dtype} is not defined")
    return (pairs if result_dtype == ResultDtype.F32 else rows), kind


def read_result(
    frame: Frame, pair_count: int, n_embd: int, *, result_dtype: int = ResultDtype.F32, row_count: int = 0
) -> npt.NDArray[Any]:
    """values (P, n_embd) float32 or (R, n_embd) partial sums, read-only view of the body, in the result dtype that was
    asked for. Raises MessageError when the body has another size."""
    count, kind = result_shape(result_dtype, row_count, pair_count)
    size = count * n_embd * np.dtype(kind).itemsize
    if frame.result_dtype != result_dtype or frame.pairs != pair_count or len(frame.body) != size:
        raise MessageError(
            f"{len(frame.body)} bytes, {frame.pairs} pairs, dtype {frame.result_dtype} "
            f"where {count} x {n_embd} of result dtype {result_dtype} were asked for"
        )
    return _array(frame.body, kind, count * n_embd).reshape(count, n_embd)


def _array(body: Body, dtype: str, count: int, offset: int = 0) -> npt.NDArray[Any]:
    """A view of the body, or a copy where the body lies at an address that its type does not allow."""
    return np.require(np.frombuffer(body, dtype, count, offset), requirements="A")


class _Partial:
    """Chunks of one body, so far."""

    def __init__(self, first: Frame) -> None:
        self.first = first
        self.chunks: list[bytes] = []
        self.size = 0


class Reassembler:
    """Joins chunks to whole frames, within a limit per body and one over all bodies that are open.

    Chunks of one body arrive in order; bodies of different (session, stream, request) may be interleaved. After an
    error the body is forgotten, so its later chunks are errors too.
    """

    def __init__(self, max_body_bytes: int, max_total_bytes: int) -> None:
        self._max_body_bytes = max_body_bytes
        self._max_total_bytes = max_total_bytes
        self._partials: dict[tuple[int, int, int], _Partial] = {}
        self.total_bytes = 0

    def add(self, frame: Frame) -> Frame | None:
        """The whole frame (chunk 0, no FLAG_MORE) when this was its last chunk. Raises MessageError."""
        more = frame.flags & FLAG_MORE
        if not more and not frame.chunk:
            return frame
        key = (frame.session, frame.stream, frame.request)
        partial = self._partials.get(key)
        if frame.chunk == 0:
            self.discard(*key)
            if len(self._partials) >= MAX_OPEN_BODIES:
                raise MessageError(f"more than {MAX_OPEN_BODIES} requests are arriving at once")
            partial = self._partials[key] = _Partial(frame)
        if partial is None or frame.chunk != len(partial.chunks):
            self.discard(*key)
            raise MessageError(f"chunk {frame.chunk} of request {frame.request} came without the one before it")
        size = len(frame.body)
        if partial.size + size > self._max_body_bytes or self.total_bytes + size > self._max_total_bytes:
            self.discard(*key)
            raise MessageError(f"request {frame.request} is larger than this receiver takes")
        # A copy: a view would keep its whole message alive, which these limits do not count.
        partial.chunks.append(bytes(frame.body))
        partial.size += size
        self.total_bytes += size
        if more:
            return None
        whole = partial.first._replace(flags=partial.first.flags & ~FLAG_MORE, body=b"".join(partial.chunks))
        self.discard(*key)
        return whole

    def discard(self, session: int, stream: int, request: int) -> None:
        """Forgets what came of one body, if anything did."""
        partial = self._partials.pop((session, stream, request), None)
        if partial is not None:
            self.total_bytes -= partial.size

    def discard_stream(self, stream: int) -> None:
        """Forgets every open body of one stream."""
        for key in [key for key in self._partials if key[1] == stream]:
            self.discard(*key)
