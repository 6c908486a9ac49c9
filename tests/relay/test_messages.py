"""relay/messages.py: bodies byte by byte, sizes against headers, reassembly within its limits, a seeded fuzz."""

import random
from collections.abc import Callable

import numpy as np
import pytest

from relay.errors import MessageError
from relay.frames import (
    CHUNK_BYTES,
    FLAG_MORE,
    FLAG_RELAY,
    Frame,
    FrameType,
    ResultDtype,
    RowDtype,
    decode_frames,
    encode_frame,
    split_frame,
)
from relay.messages import (
    MAX_OPEN_BODIES,
    Lease,
    Reassembler,
    cancel_frame,
    credit_frame,
    dispatch_frame,
    error_frame,
    hello_frame,
    ping_frame,
    pong_frame,
    read_credit,
    read_dispatch,
    read_hello,
    read_lease,
    read_refusal,
    read_result,
    read_roster,
    read_status,
    read_welcome,
    reject_frame,
    result_frame,
    roster_frames,
    row_bytes,
    row_width,
    status_frame,
    welcome_frame,
)
from relay.records import RosterSession, Welcome
from tests.relay.builders import hello_json, replica, replica_json

LEASE = Lease(fence=0x01020304, claim_id=0x0A0B0C0D0E0F1011)
PAIRS = np.array([[0, 5], [1, 6], [0, 7]], np.uint16)
F32_ROWS = np.array([[1.0, -2.0], [0.5, 4.0]], np.float32)


def small_dispatch() -> Frame:
    return dispatch_frame(layer=3, session=9, request=77, lease=LEASE, pairs=PAIRS, rows=F32_ROWS)


def literal(*parts: str) -> bytes:
    return bytes.fromhex("".join(parts).replace(" ", ""))


def assert_bytes(frame: Frame, expected: bytes) -> None:
    assert encode_frame(frame) == expected
    assert decode_frames(expected) == [frame]


def test_it_writes_a_dispatch_byte_by_byte() -> None:
    assert_bytes(
        small_dispatch()._replace(stream=2),
        literal(
            "10 00 0300 09000000 4d00000000000000 02000000 0200 0300 00 00 0000 28000000",
            "04030201 11100f0e0d0c0b0a",
            "00000500 01000600 00000700",
            "0000803f 000000c0 0000003f 00008040",
        ),
    )


def test_it_writes_a_result_byte_by_byte() -> None:
    request = small_dispatch()._replace(stream=2)

    frame = result_frame(request, np.array([[1.0], [2.0], [-1.0]], np.float32))

    assert_bytes(
        frame,
        literal(
            "13 00 0300 09000000 4d00000000000000 02000000 0200 0300 00 00 0000 0c000000 0000803f 00000040 000080bf"
        ),
    )


def test_it_writes_the_small_frames_byte_by_byte() -> None:
    zeros = "000000000000000000000000"

    assert_bytes(
        ping_frame(b"12345678"), literal("20 00 0000 00000000 ", zeros, "0000000000000000 08000000 3132333435363738")
    )
    assert_bytes(
        pong_frame(ping_frame(b"12345678")),
        literal("21 00 0000 00000000", zeros, "0000000000000000 08000000 3132333435363738"),
    )
    assert_bytes(
        credit_frame(258, session=1), literal("15 00 0000 01000000", zeros, "0000000000000000 04000000 02010000")
    )
    assert_bytes(
        credit_frame(258, stream=1),
        literal("15 00 0000 00000000 0000000000000000 01000000 0000000000000000 04000000 02010000"),
    )
    assert_bytes(
        cancel_frame(6, session=1), literal("12 00 0000 01000000 0600000000000000 00000000 0000000000000000 00000000")
    )
    assert_bytes(Frame(FrameType.DRAIN), literal("23 00 0000 00000000", zeros, "0000000000000000 00000000"))


def test_it_writes_the_json_frames_byte_by_byte() -> None:
    header = "00 0000 00000000 000000000000000000000000 0000000000000000"
    error = error_frame(small_dispatch()._replace(stream=2), "internal", "m", FLAG_RELAY)

    assert_bytes(
        reject_frame("bad_token", "m"), literal("03", header, "22000000") + b'{"code":"bad_token","message":"m"}'
    )
    assert_bytes(status_frame({"load": 0.5}), literal("22", header, "0c000000") + b'{"load":0.5}')
    assert_bytes(
        error,
        literal("14 02 0300 09000000 4d00000000000000 02000000 0000 0000 00 00 0000 21000000")
        + b'{"code":"internal","message":"m"}',
    )
    assert_bytes(
        welcome_frame(Welcome(session=0, stream=3, ping_seconds=10.0, credit_bytes=1, credit_limit_bytes=2)),
        literal("02 00 0000 00000000 0000000000000000 03000000 0000000000000000 60000000")
        + b'{"session":0,"stream":3,"ping_seconds":10.0,"credit_bytes":1,"credit_limit_bytes":2,"relays":[]}',
    )


def test_it_carries_hello_status_error_and_reject_there_and_back() -> None:
    fields = hello_json()
    del fields["protocol"]

    assert read_hello(hello_frame(fields)).protocol == 1
    assert read_status(status_frame({"replicas": [replica_json()]})).replicas == (replica(),)
    assert read_refusal(error_frame(small_dispatch(), "stale_fence", "old")).code == "stale_fence"
    assert read_welcome(welcome_frame(Welcome(1, 0, 2.0, 3, 4))).credit_limit_bytes == 4
    with pytest.raises(MessageError):
        hello_frame({"token": "t"})
    with pytest.raises(MessageError):
        status_frame({"load": -1})


@pytest.mark.parametrize("row_dtype", RowDtype)
def test_it_carries_rows_and_pairs_there_and_back(row_dtype: RowDtype) -> None:
    size = {RowDtype.Q8: 520, RowDtype.Q8_0: 544}.get(row_dtype)
    rows = F32_ROWS if size is None else np.resize(np.arange(256, dtype=np.uint8), (2, size))

    frame = dispatch_frame(
        layer=1,
        session=2,
        request=3,
        lease=LEASE,
        pairs=PAIRS,
        rows=rows,
        row_dtype=row_dtype,
        kind=FrameType.CHALLENGE,
    )
    body = read_dispatch(frame)

    assert frame.type == FrameType.CHALLENGE
    assert (body.fence, body.claim_id) == LEASE == read_lease(frame)
    assert np.array_equal(body.pairs, PAIRS)
    assert np.array_equal(body.rows, rows)
    assert body.rows.dtype == rows.dtype
    assert len(frame.body) == 12 + 4 * 3 + 2 * row_bytes(row_dtype, row_width(row_dtype, rows.nbytes // 2))


def test_it_copes_with_a_body_at_an_odd_address() -> None:
    message = b"x" + encode_frame(small_dispatch())

    frame = decode_frames(memoryview(message)[1:])[0]

    body = read_dispatch(frame)
    assert body.rows.flags.aligned
    assert np.array_equal(body.rows, F32_ROWS)


def test_it_refuses_a_dispatch_at_every_truncation() -> None:
    frame = small_dispatch()
    for size in range(len(frame.body)):
        cut = frame._replace(body=frame.body[:size])
        if size in (32,):  # two rows of one value: well-formed, only narrower
            assert read_dispatch(cut).rows.shape == (2, 1)
            continue
        with pytest.raises(MessageError):
            read_dispatch(cut)


@pytest.mark.parametrize(
    "fields", [{"rows": 0}, {"pairs": 0}, {"row_dtype": 1}, {"row_dtype": 9}, {"rows": 1, "pairs": 3}]
)
def test_it_refuses_a_dispatch_whose_header_contradicts_the_body(fields: dict[str, int]) -> None:
    frame = decode_frames(encode_frame(small_dispatch()))[0]
    with pytest.raises(MessageError):
        read_dispatch(Frame(**{**frame._asdict(), **fields}))


def test_it_reads_a_result_only_in_the_shape_that_was_asked_for() -> None:
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    frame = result_frame(small_dispatch(), values)

    assert np.array_equal(read_result(frame, 3, 4), values)
    for pairs, width in ((3, 3), (4, 3), (2, 4), (3, 5)):
        with pytest.raises(MessageError):
            read_result(frame, pairs, width)
    with pytest.raises(MessageError):
        read_result(frame._replace(result_dtype=1), 3, 4)


@pytest.mark.parametrize(("row_dtype", "n_embd"), [(1, 255), (1, 0), (0, 0), (2, 48), (3, 256)])
def test_it_knows_which_widths_a_row_type_can_hold(row_dtype: int, n_embd: int) -> None:
    assert row_bytes(RowDtype.Q8, 3072) == 3120
    assert row_width(RowDtype.Q8, 3120) == 3072
    assert row_bytes(RowDtype.Q8_0, 3072) == 3264
    assert row_width(RowDtype.Q8_0, 3264) == 3072
    with pytest.raises(MessageError):
        row_bytes(row_dtype, n_embd)


def test_it_reads_credit_of_at_least_one_header() -> None:
    assert read_credit(credit_frame((1 << 32) - 1)) == (1 << 32) - 1
    assert read_credit(credit_frame(32)) == 32
    for body in (b"", b"\0\0\0\0", b"\x1f\0\0\0", b"\1\0\0", b"\1\0\0\0\0"):
        with pytest.raises(MessageError):
            read_credit(Frame(FrameType.CREDIT, body=body))


def test_it_cuts_a_large_roster_into_frames_of_one_chunk() -> None:
    held = tuple(replica(claim_id=n) for n in range(200))
    sessions = [RosterSession(n, f"node-{n}", "numpy", "Bob", {}, held) for n in range(20)]

    frames = list(roster_frames(True, sessions, [1, 2]))
    changes = [read_roster(frame) for frame in frames]

    assert len(frames) > 3
    assert max(len(frame.body) for frame in frames) < CHUNK_BYTES
    assert [change.full for change in changes] == [True] + [False] * (len(frames) - 1)
    assert [session for change in changes for session in change.joined] == sessions
    assert [change.left for change in changes if change.left] == [(1, 2)]
    assert [read_roster(frame).full for frame in roster_frames(True, [])] == [True]


def chunks_of(size: int, request: int = 1, stream: int = 1) -> list[Frame]:
    body = random.Random(size).randbytes(size)
    return list(split_frame(Frame(FrameType.RESULT, request=request, stream=stream, pairs=1, body=body)))


def test_it_reassembles_interleaved_bodies() -> None:
    reassembler = Reassembler(4 << 20, 8 << 20)
    one, two = chunks_of(3 * CHUNK_BYTES), chunks_of(2 * CHUNK_BYTES + 1, request=2)

    outcomes = [reassembler.add(frame) for pair in zip(one, two, strict=True) for frame in pair]

    assert outcomes[:4] == [None] * 4
    for whole, chunks in zip(outcomes[4:], (one, two), strict=True):
        assert whole is not None
        assert (whole.flags, whole.chunk) == (0, 0)
        assert whole.body == b"".join(chunk.body for chunk in chunks)
    assert reassembler.total_bytes == 0


def test_a_whole_frame_passes_through_untouched() -> None:
    frame = Frame(FrameType.RESULT, request=1, body=b"x")

    assert Reassembler(1, 1).add(frame) is frame


def test_it_refuses_a_chunk_out_of_order_and_forgets_the_body() -> None:
    reassembler = Reassembler(4 << 20, 8 << 20)
    first, second, third = chunks_of(3 * CHUNK_BYTES)

    reassembler.add(first)
    for wrong in (third, second):
        with pytest.raises(MessageError):
            reassembler.add(wrong)

    assert reassembler.total_bytes == 0


def test_it_refuses_a_body_above_its_limit_and_a_sum_above_the_total() -> None:
    limit = 2 * CHUNK_BYTES
    exact, above = chunks_of(limit), chunks_of(limit + 1)
    reassembler = Reassembler(limit, limit + CHUNK_BYTES - 1)

    assert [reassembler.add(frame) is None for frame in exact] == [True, False]
    reassembler.add(above[0])
    reassembler.add(above[1])
    with pytest.raises(MessageError):
        reassembler.add(above[2])
    for request in (1, 2):
        reassembler.add(chunks_of(limit, request=request)[0])
        if request == 1:
            continue
        with pytest.raises(MessageError):
            reassembler.add(chunks_of(limit, request=3)[0])


def test_it_bounds_how_many_bodies_are_open() -> None:
    reassembler = Reassembler(1 << 20, 1 << 20)
    tiny = Frame(FrameType.RESULT, flags=FLAG_MORE, body=b"x")

    for request in range(MAX_OPEN_BODIES):
        reassembler.add(tiny._replace(request=request))
    with pytest.raises(MessageError):
        reassembler.add(tiny._replace(request=MAX_OPEN_BODIES))


def test_it_forgets_one_body_or_all_of_a_stream() -> None:
    reassembler = Reassembler(4 << 20, 8 << 20)
    for stream, request in ((1, 1), (1, 2), (2, 1)):
        reassembler.add(chunks_of(2 * CHUNK_BYTES, request, stream)[0])

    reassembler.discard(0, 1, 1)
    reassembler.discard(0, 1, 1)
    assert reassembler.total_bytes == 2 * CHUNK_BYTES
    reassembler.discard_stream(1)

    assert reassembler.total_bytes == CHUNK_BYTES


READERS: list[Callable[[Frame], object]] = [
    read_hello,
    read_welcome,
    read_refusal,
    read_status,
    read_roster,
    read_credit,
    read_dispatch,
    lambda frame: read_result(frame, 3, 2),
]


def test_readers_raise_only_message_errors_for_mutated_frames() -> None:
    seed = 42
    source = random.Random(seed)
    session = RosterSession(1, "n", "k", "Bob", {}, (replica(),))
    samples = [
        hello_frame(hello_json()),
        status_frame({"replicas": [replica_json()], "load": 1}),
        *roster_frames(True, [session]),
        welcome_frame(Welcome(1, 0, 2.0, 3, 4)),
        reject_frame("bad_token", "m"),
        credit_frame(50),
        small_dispatch(),
        result_frame(small_dispatch(), np.zeros((3, 2), np.float32)),
    ]
    read = refused = 0

    for _ in range(8_000):
        frame = source.choice(samples)
        body = bytearray(frame.body)
        for _ in range(source.randint(0, 3)):
            position = source.randrange(len(body))
            body[position : position + source.randint(0, 2)] = source.randbytes(source.randint(0, 2))
        frame = frame._replace(
            body=bytes(body),
            rows=source.choice([frame.rows, 0, 1, 65_535]),
            row_dtype=source.choice([frame.row_dtype, 1, 255]),
        )
        for reader in READERS:
            try:
                reader(frame)
                read += 1
            except MessageError:
                refused += 1

    assert min(read, refused) > 500, (seed, read, refused)


@pytest.mark.parametrize(("result_dtype", "kind"), [(ResultDtype.PARTIAL_F32, "<f4"), (ResultDtype.PARTIAL_F16, "<f2")])
def test_partial_sums_take_weights_there_and_a_row_per_row_back(result_dtype: ResultDtype, kind: str) -> None:
    pairs = np.array([[0, 3], [0, 5], [1, 3]], np.uint16)
    weights = np.array([0.25, 0.5, 1.0], np.float32)
    rows = np.arange(8, dtype=np.float32).reshape(2, 4)
    request = dispatch_frame(
        layer=1, session=2, request=3, lease=Lease(4, 5), pairs=pairs, rows=rows,
        result_dtype=result_dtype, weights=weights,
    )  # fmt: skip

    body = read_dispatch(request)
    sums = np.ones((2, 4), kind)
    values = read_result(result_frame(request, sums), 3, 4, result_dtype=result_dtype, row_count=2)

    assert len(request.body) == 12 + 3 * 4 + 3 * 4 + 2 * 16
    assert body.weights is not None
    assert np.array_equal(body.weights, weights)
    assert np.array_equal(body.rows, rows)
    assert np.array_equal(body.pairs, pairs)
    assert values.dtype == np.dtype(kind)
    assert np.array_equal(values, sums)


def test_an_answer_in_another_result_dtype_than_asked_for_is_refused() -> None:
    request = dispatch_frame(
        layer=1, session=2, request=3, lease=Lease(4, 5), pairs=np.zeros((1, 2), np.uint16),
        rows=np.zeros((1, 4), np.float32),
    )  # fmt: skip
    answer = result_frame(request, np.zeros((1, 4), np.float32))

    with pytest.raises(MessageError):
        read_result(answer, 1, 4, result_dtype=ResultDtype.PARTIAL_F32, row_count=1)
    with pytest.raises(MessageError):
        read_result(answer._replace(result_dtype=9), 1, 4, result_dtype=9, row_count=1)
