"""relay/outbound.py: what counts as read, when a slow reader is noticed, how frames share messages."""

import sys
from itertools import count

import pytest

from relay.frames import CHUNK_BYTES, HEADER_BYTES, MESSAGE_TARGET_BYTES, Frame, FrameType, decode_frames, encode_frame
from relay.messages import credit_frame, pong_frame
from relay.outbound import PROBE_BYTES, PROBE_CONTROL_BYTES, Limits, Outbound

BODY = bytes(1000)
SIZE = HEADER_BYTES + len(BODY)
PING_SIZE = HEADER_BYTES + 8
CREDIT_SIZE = HEADER_BYTES + 4


@pytest.fixture
def outbound() -> Outbound:
    tokens = count(1)
    return Outbound(Limits(control_bytes=50_000, total_bytes=1_000_000), lambda: next(tokens).to_bytes(8, "little"))


def data(request: int = 1, size: int = len(BODY)) -> Frame:
    return Frame(FrameType.RESULT, request=request, body=bytes(size))


def drain(outbound: Outbound) -> list[Frame]:
    frames: list[Frame] = []
    while (message := outbound.take()) is not None:
        frames += decode_frames(message)
    return frames


def read_all(outbound: Outbound) -> None:
    for frame in drain(outbound):
        if frame.type is FrameType.PING:
            outbound.acknowledge(bytes(pong_frame(frame).body))


def test_frames_leave_in_order_and_share_messages(outbound: Outbound) -> None:
    for request in range(1, 6):
        outbound.push(data(request), counted=True)

    message = outbound.take()

    assert message is not None
    assert [frame.request for frame in decode_frames(message)] == [1, 2, 3, 4, 5]
    assert outbound.take() is None


def test_a_message_stays_at_the_target_unless_one_frame_is_larger(outbound: Outbound) -> None:
    for size in (CHUNK_BYTES, 30_000, 30_000, 30_000):
        outbound.push(data(size=size), counted=True)

    sizes = []
    while (message := outbound.take()) is not None:
        sizes.append(len(message))

    assert sizes[0] == CHUNK_BYTES + HEADER_BYTES
    assert max(sizes[1:]) <= MESSAGE_TARGET_BYTES


def test_a_small_frame_rides_along_with_a_large_one(outbound: Outbound) -> None:
    outbound.push(credit_frame(1000, session=1))
    outbound.push(data(size=CHUNK_BYTES), counted=True)
    outbound.push(credit_frame(1000, session=1))

    message = outbound.take()

    assert message is not None
    assert [frame.type for frame in decode_frames(message)] == [FrameType.CREDIT, FrameType.RESULT, FrameType.CREDIT]


def test_a_large_message_that_needs_no_change_goes_on_as_it_came(outbound: Outbound) -> None:
    came = encode_frame(data(size=200_000))
    outbound.push(credit_frame(1000, session=1))
    outbound.pass_on(came, came)
    outbound.push(data(2), counted=True)

    messages = [outbound.take(), outbound.take(), outbound.take()]

    assert messages[1] is came
    assert messages[2] == encode_frame(data(2))
    assert outbound.take() is None


def test_a_part_of_a_message_is_joined_with_what_else_waits(outbound: Outbound) -> None:
    came = encode_frame(credit_frame(1000, session=1)) + encode_frame(data(1)) + encode_frame(data(2))
    outbound.pass_on(memoryview(came)[CREDIT_SIZE:], came)
    outbound.push(data(3), counted=True)

    message = outbound.take()

    assert message == came[CREDIT_SIZE:] + encode_frame(data(3))
    assert outbound.unread_bytes == 3 * SIZE


def test_what_waits_does_not_keep_a_message_alive_of_which_it_is_a_small_part(outbound: Outbound) -> None:
    small, large = bytearray(10_000), bytearray(10_000)
    outbound.push(data()._replace(body=memoryview(small)[:4_000]), counted=True)
    outbound.push(data()._replace(body=memoryview(large)[:6_000]), counted=True)
    message = bytes(10_000)
    references = sys.getrefcount(message)
    outbound.pass_on(memoryview(message)[:4_000], message)

    small.append(0)
    with pytest.raises(BufferError):  # a view of it waits in the queue
        large.append(0)
    assert sys.getrefcount(message) == references


def test_what_was_sent_counts_as_unread_until_its_probe_is_answered(outbound: Outbound) -> None:
    outbound.push(data(), counted=True)
    outbound.probe()
    drain(outbound)

    assert outbound.unread_bytes == SIZE + PING_SIZE
    outbound.acknowledge((1).to_bytes(8, "little"))

    assert outbound.unread_bytes == 0


def test_it_probes_by_itself_after_enough_bytes(outbound: Outbound) -> None:
    for _ in range(PROBE_BYTES // SIZE + 1):
        outbound.push(data(), counted=True)
    for _ in range(PROBE_CONTROL_BYTES // SIZE + 1):
        outbound.push(Frame(FrameType.STATUS, body=BODY))

    kinds = [frame.type for frame in drain(outbound)]

    assert kinds.count(FrameType.PING) == 2
    assert kinds[-1] is FrameType.PING


def test_a_client_that_reads_may_receive_any_amount(outbound: Outbound) -> None:
    for _ in range(3_000):
        assert outbound.push(data(), counted=True)
        assert outbound.push(Frame(FrameType.STATUS, body=BODY))
        if outbound.unread_bytes > 20_000:
            read_all(outbound)


def test_a_client_that_never_reads_reaches_the_limit_of_all_frames(outbound: Outbound) -> None:
    pushed = 0
    while outbound.push(data(), counted=True):
        pushed += SIZE
        drain(outbound)

    assert 990_000 < pushed <= 1_000_000


def test_a_client_that_never_reads_reaches_the_limit_of_control_frames_sooner(outbound: Outbound) -> None:
    pushed = 0
    while outbound.push(Frame(FrameType.PONG, body=bytes(8))):
        pushed += PING_SIZE
        drain(outbound)

    assert 49_000 < pushed <= 50_000


def test_a_guessed_or_repeated_token_acknowledges_nothing(outbound: Outbound) -> None:
    outbound.push(data(), counted=True)
    outbound.probe()
    before = outbound.unread_bytes

    outbound.acknowledge(b"\xff" * 8)

    assert outbound.unread_bytes == before
    outbound.acknowledge((1).to_bytes(8, "little"))
    outbound.push(data(), counted=True)
    outbound.acknowledge((1).to_bytes(8, "little"))
    assert outbound.unread_bytes == SIZE


def test_a_later_token_acknowledges_the_earlier_ones(outbound: Outbound) -> None:
    for _ in range(3):
        outbound.push(data(), counted=True)
        outbound.probe()

    outbound.acknowledge((2).to_bytes(8, "little"))

    assert outbound.unread_bytes == SIZE + PING_SIZE


def test_clear_drops_what_was_not_sent(outbound: Outbound) -> None:
    outbound.push(data(), counted=True)

    outbound.clear()

    assert outbound.take() is None
