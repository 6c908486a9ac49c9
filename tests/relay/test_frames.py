"""Exact bytes, every truncation, every limit, and a seeded fuzz of relay/frames.py."""

import random
from collections import deque

import pytest

from relay.errors import FrameError, OversizeFrame, TruncatedFrame, UnknownFrame
from relay.frames import (
    CHUNK_BYTES,
    FLAG_MORE,
    FLAG_RELAY,
    HEADER_BYTES,
    MESSAGE_BYTES,
    Frame,
    FrameType,
    decode_frames,
    encode_frame,
    encode_header,
    split_frame,
    take_message,
)

FULL = Frame(
    FrameType.DISPATCH,
    flags=FLAG_MORE,
    layer=0x0102,
    session=0x03040506,
    request=0x0708090A0B0C0D0E,
    stream=0x0F101112,
    rows=0x1314,
    pairs=0x1516,
    row_dtype=1,
    result_dtype=0,
    chunk=0x1718,
    body=b"\xaa\xbb\xcc",
)
FULL_BYTES = bytes.fromhex(
    "10 01 0201 06050403 0e0d0c0b0a090807 1211100f 1413 1615 01 00 1817 03000000 aabbcc".replace(" ", "")
)
TYPE_BYTES = {
    FrameType.HELLO: 0x01,
    FrameType.WELCOME: 0x02,
    FrameType.REJECT: 0x03,
    FrameType.ROSTER: 0x04,
    FrameType.DISPATCH: 0x10,
    FrameType.CHALLENGE: 0x11,
    FrameType.CANCEL: 0x12,
    FrameType.RESULT: 0x13,
    FrameType.ERROR: 0x14,
    FrameType.CREDIT: 0x15,
    FrameType.STEP: 0x16,
    FrameType.PING: 0x20,
    FrameType.PONG: 0x21,
    FrameType.STATUS: 0x22,
    FrameType.DRAIN: 0x23,
}


def assert_bytes(frame: Frame, literal: bytes) -> None:
    assert encode_frame(frame) == literal
    assert decode_frames(literal) == [frame]


def test_it_writes_every_field_at_its_place_in_little_endian() -> None:
    assert HEADER_BYTES == 32
    assert_bytes(FULL, FULL_BYTES)


@pytest.mark.parametrize("kind", FrameType)
def test_it_writes_the_stable_byte_of_every_kind(kind: FrameType) -> None:
    literal = bytes([TYPE_BYTES[kind]]) + bytes(27) + b"\x02\0\0\0hi"

    assert_bytes(Frame(kind, body=b"hi"), literal)


def test_it_refuses_every_type_byte_that_is_not_defined() -> None:
    for value in set(range(256)) - set(TYPE_BYTES.values()):
        with pytest.raises(UnknownFrame):
            decode_frames(bytes([value]) + bytes(31))


def test_it_refuses_every_flag_that_is_not_defined() -> None:
    for flags in range(256):
        message = bytes([FrameType.PING, flags]) + bytes(30)
        if flags & ~(FLAG_MORE | FLAG_RELAY):
            with pytest.raises(UnknownFrame):
                decode_frames(message)
            with pytest.raises(UnknownFrame):
                encode_frame(Frame(FrameType.PING, flags=flags))
        else:
            assert decode_frames(message)[0].flags == flags


def test_it_refuses_every_truncation() -> None:
    two = FULL_BYTES + encode_frame(Frame(FrameType.PING, body=b"12345678"))
    whole = {len(FULL_BYTES), len(two)}

    for size in set(range(len(two))) - whole:
        with pytest.raises(TruncatedFrame):
            decode_frames(two[:size])
    assert len(decode_frames(two)) == 2


@pytest.mark.parametrize(
    "size", [0, 1, 93, 94, 125, 126, 127, 65_503, 65_504, 65_535, 65_536, CHUNK_BYTES - 1, CHUNK_BYTES]
)
def test_it_carries_bodies_of_every_awkward_size(size: int) -> None:
    body = random.Random(size).randbytes(size)
    frame = Frame(FrameType.RESULT, request=7, body=body)

    message = encode_frame(frame)

    assert len(message) == HEADER_BYTES + size
    assert decode_frames(message) == [frame]


def test_it_refuses_a_body_above_the_chunk_limit_in_both_directions() -> None:
    with pytest.raises(OversizeFrame):
        encode_frame(Frame(FrameType.RESULT, body=bytes(CHUNK_BYTES + 1)))
    header = bytes([FrameType.RESULT]) + bytes(27) + (CHUNK_BYTES + 1).to_bytes(4, "little")
    with pytest.raises(OversizeFrame):
        decode_frames(header + bytes(CHUNK_BYTES + 1))


def test_it_refuses_a_message_above_the_message_limit() -> None:
    half = encode_frame(Frame(FrameType.RESULT, body=bytes(CHUNK_BYTES - HEADER_BYTES)))
    rest = encode_frame(Frame(FrameType.RESULT, body=bytes(MESSAGE_BYTES - len(half) - HEADER_BYTES)))

    assert len(decode_frames(half + rest)) == 2
    with pytest.raises(OversizeFrame):
        decode_frames(half + half)


@pytest.mark.parametrize(
    "frame",
    [
        Frame(FrameType.DISPATCH, layer=1 << 16),
        Frame(FrameType.DISPATCH, session=1 << 32),
        Frame(FrameType.DISPATCH, request=1 << 64),
        Frame(FrameType.DISPATCH, rows=-1),
        Frame(FrameType.DISPATCH, pairs=1 << 16),
        Frame(FrameType.DISPATCH, chunk=1 << 16),
    ],
)
def test_it_refuses_to_write_a_value_that_does_not_fit(frame: Frame) -> None:
    with pytest.raises(FrameError):
        encode_header(frame)


def test_it_leaves_a_small_frame_whole_and_splits_a_large_one_in_order() -> None:
    body = random.Random(1).randbytes(2 * CHUNK_BYTES + 5)
    small = Frame(FrameType.RESULT, body=body[:CHUNK_BYTES])

    chunks = list(split_frame(small._replace(body=body, layer=3, request=9)))

    assert list(split_frame(small)) == [small]
    assert [len(chunk.body) for chunk in chunks] == [CHUNK_BYTES, CHUNK_BYTES, 5]
    assert [chunk.chunk for chunk in chunks] == [0, 1, 2]
    assert [chunk.flags for chunk in chunks] == [FLAG_MORE, FLAG_MORE, 0]
    assert {(chunk.layer, chunk.request) for chunk in chunks} == {(3, 9)}
    assert b"".join(chunk.body for chunk in chunks) == body


def test_it_refuses_a_body_of_more_chunks_than_the_field_can_count() -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return CHUNK_BYTES * (1 << 16) + 1

    with pytest.raises(OversizeFrame):
        list(split_frame(Frame(FrameType.RESULT, body=Huge())))


def test_it_joins_frames_in_order_into_messages_below_the_target() -> None:
    frames = [Frame(FrameType.RESULT, request=index, body=bytes(index * 40)) for index in range(1, 60)]
    queue = deque(map(encode_frame, frames))

    messages = []
    while (message := take_message(queue, target=4096)) is not None:
        messages.append(message)

    assert len(messages) > 10
    assert all(len(message) <= 4096 for message in messages)
    assert [frame for message in messages for frame in decode_frames(message)] == frames


def test_it_sends_a_frame_above_the_target_alone() -> None:
    queue = deque(encode_frame(Frame(FrameType.RESULT, request=n, body=bytes(CHUNK_BYTES))) for n in (1, 2))

    sizes = [len(take_message(queue) or b"") for _ in range(3)]

    assert sizes == [CHUNK_BYTES + HEADER_BYTES] * 2 + [0]


def _mutated(random_bytes: random.Random, samples: list[bytes]) -> bytes:
    data = bytearray(random_bytes.choice(samples))
    for _ in range(random_bytes.randint(1, 6)):
        action = random_bytes.randrange(3)
        position = random_bytes.randrange(len(data) + 1)
        if action == 0 and position < len(data):
            data[position] = random_bytes.randrange(256)
        elif action == 1:
            del data[position : position + random_bytes.randint(1, 9)]
        else:
            data[position:position] = random_bytes.randbytes(random_bytes.randint(1, 9))
    return bytes(data)


def test_it_raises_only_frame_errors_for_random_and_mutated_bytes() -> None:
    seed = 20_260_101
    source = random.Random(seed)
    samples = [encode_frame(Frame(kind, request=3, body=source.randbytes(n))) for kind in FrameType for n in (0, 8, 64)]
    samples += [b"".join(source.sample(samples, 3)) for _ in range(10)]

    outcomes = {"frames": 0, "errors": 0}
    for turn in range(20_000):
        message = source.randbytes(source.randrange(200)) if turn % 4 == 0 else _mutated(source, samples)
        try:
            frames = decode_frames(message)
        except FrameError:
            outcomes["errors"] += 1
            continue
        outcomes["frames"] += 1
        assert b"".join(map(encode_frame, frames)) == message, f"seed {seed}, turn {turn}"

    assert min(outcomes.values()) > 1_000, outcomes
