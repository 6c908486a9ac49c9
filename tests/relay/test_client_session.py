"""relay/client_session.py without sockets: the opening, credit in both directions, what a new session forgets."""

from collections.abc import Callable

import pytest

from relay import client_session
from relay.client_session import ClientSession
from relay.credit import cost
from relay.errors import FrameError, MessageError, ProtocolViolation, Rejected
from relay.frames import CHUNK_BYTES, Frame, FrameType, Role, decode_frames, encode_frame, split_frame
from relay.messages import (
    LEASE,
    Reassembler,
    cancel_frame,
    credit_frame,
    ping_frame,
    read_credit,
    read_hello,
    reject_frame,
    welcome_frame,
)
from relay.records import Welcome
from tests.relay.builders import hello_json

WINDOW, LIMIT = 10_000, 40_000
STREAM = 77


class End:
    """A client session with what it delivered and what it sent."""

    def __init__(self, role: Role, credit_bytes: int = WINDOW) -> None:
        self.role = role
        self.delivered: list[Frame] = []
        self.credit_bytes = credit_bytes
        reassembler = Reassembler(4 << 20, 4 << 20) if role is Role.WORKER else None
        self.session = ClientSession(role, hello_json(), self.delivered.append, reassembler)
        self.opening = self.session.take()

    def welcome(self) -> None:
        number = (5, 0) if self.role is Role.WORKER else (0, 5)
        self.receive(welcome_frame(Welcome(*number, 10.0, self.credit_bytes, max(LIMIT, self.credit_bytes))))

    def receive(self, *frames: Frame) -> None:
        self.session.receive(b"".join(map(encode_frame, frames)))

    def sent(self) -> list[Frame]:
        frames: list[Frame] = []
        while (message := self.session.take()) is not None:
            frames += decode_frames(message)
        return frames


@pytest.fixture
def worker() -> End:
    end = End(Role.WORKER)
    end.welcome()
    return end


@pytest.fixture
def backbone() -> End:
    end = End(Role.BACKBONE)
    end.welcome()
    return end


def dispatch(size: int = 100, session: int = 5, stream: int = STREAM, request: int = 1) -> Frame:
    body = LEASE.pack(1, 7) + bytes(size - LEASE.size)
    return Frame(
        FrameType.DISPATCH, layer=3, session=session, stream=stream, request=request, rows=1, pairs=1, body=body
    )


def result(size: int = 100, session: int = 5, stream: int = STREAM, request: int = 1) -> Frame:
    return Frame(FrameType.RESULT, session=session, stream=stream, request=request, rows=1, pairs=1, body=bytes(size))


@pytest.mark.parametrize("role", Role)
def test_the_first_message_is_the_preamble_and_hello(role: Role) -> None:
    end = End(role)

    assert end.opening is not None
    assert end.opening[0] == role
    (hello,) = decode_frames(end.opening[1:])
    assert read_hello(hello).name == "Bob"
    assert end.sent() == []


def test_nothing_is_sent_before_welcome() -> None:
    end = End(Role.WORKER)

    assert not end.session.send(Frame(FrameType.DRAIN))
    assert not end.session.try_send(dispatch())
    end.welcome()

    assert end.session.is_open
    assert end.session.send(Frame(FrameType.DRAIN))


def test_a_reject_is_raised_with_its_code(worker: End) -> None:
    with pytest.raises(Rejected) as caught:
        worker.receive(reject_frame("replaced", "another one came"))

    assert (caught.value.code, str(caught.value)) == ("replaced", "another one came")
    assert not worker.session.is_open


def test_a_relay_that_breaks_the_rules_is_noticed(worker: End) -> None:
    for broken in (Frame(FrameType.ROSTER, body=b"{}"), Frame(FrameType.PING, body=b"short")):
        with pytest.raises(ProtocolViolation):
            worker.receive(broken)
    with pytest.raises(FrameError):
        worker.session.receive(b"garbage")
    with pytest.raises(MessageError):
        worker.receive(dispatch()._replace(chunk=3))


def test_a_ping_is_answered_and_a_request_delivered(worker: End) -> None:
    worker.receive(ping_frame(b"12345678"), dispatch())

    assert [(frame.type, frame.body) for frame in worker.sent()] == [(FrameType.PONG, b"12345678")]
    assert worker.delivered == [dispatch()]


def test_a_body_in_chunks_arrives_whole(worker: End) -> None:
    whole = dispatch(CHUNK_BYTES + 100)

    worker.receive(*split_frame(whole))

    assert worker.delivered == [whole]


def test_answers_wait_in_order_for_credit(worker: End) -> None:
    worker.receive(dispatch())
    for request in range(1, 5):
        assert worker.session.send(result(4_000, request=request))
    first = worker.sent()

    worker.receive(credit_frame(2 * 4_032, stream=STREAM))

    assert [frame.request for frame in first] == [1, 2]
    assert [frame.request for frame in worker.sent()] == [3, 4]


def test_an_answer_larger_than_the_window_flows_chunk_by_chunk() -> None:
    worker = End(Role.WORKER, credit_bytes=CHUNK_BYTES + 32)
    worker.welcome()
    worker.receive(dispatch())
    chunks = []

    worker.session.send(result(3 * CHUNK_BYTES))
    while sent := worker.sent():
        chunks += sent
        worker.receive(credit_frame(sum(map(cost, sent)), stream=STREAM))

    assert [chunk.chunk for chunk in chunks] == [0, 1, 2]


def test_an_answer_for_a_stream_or_session_that_is_gone_is_dropped(worker: End) -> None:
    worker.receive(dispatch())

    assert not worker.session.send(result(session=4))
    assert not worker.session.send(result(stream=STREAM + 1))
    worker.receive(cancel_frame(0, session=5, stream=STREAM))

    assert not worker.session.send(result())
    assert worker.sent() == []


def test_a_worker_opens_its_window_at_once_and_grants_again_at_a_quarter_of_it(worker: End) -> None:
    worker.receive(*[dispatch(4_968, request=number) for number in range(1, 5)])
    asked = worker.delivered

    worker.session.consumed(asked[0])
    (opening,) = worker.sent()
    worker.session.consumed(asked[1])
    assert worker.sent() == []
    worker.session.consumed(asked[2])
    (quarter,) = worker.sent()
    worker.session.consumed(asked[3])
    worker.session.grant_due()
    (idle,) = worker.sent()

    assert (opening.type, opening.stream, read_credit(opening)) == (FrameType.CREDIT, STREAM, 5_000 + LIMIT - WINDOW)
    assert (read_credit(quarter), read_credit(idle)) == (10_000, 5_000)


def test_a_large_answer_that_is_asked_for_opens_its_workers_window_behind_the_request(backbone: End) -> None:
    backbone.session.try_send(Frame(FrameType.DISPATCH, session=9, body=bytes(100)))

    backbone.session.expect(9, 9_000)
    backbone.session.expect(9, 2_000)
    backbone.session.expect(8, 9_000)

    request, grant = backbone.sent()
    assert (request.type, grant.type, grant.session) == (FrameType.DISPATCH, FrameType.CREDIT, 9)
    assert read_credit(grant) == 4 * 9_000 - WINDOW


def test_windows_grow_within_the_peers_limit_and_within_what_all_may_grow_together(backbone: End) -> None:
    backbone.session._wider_bytes = LIMIT - WINDOW + 1_000
    for number in (9, 10):
        backbone.session.try_send(Frame(FrameType.DISPATCH, session=number, body=bytes(100)))
        backbone.session.expect(number, 50_000)

    grants = [read_credit(frame) for frame in backbone.sent() if frame.type is FrameType.CREDIT]
    backbone.session.forget_peer(9)

    assert grants == [LIMIT - WINDOW, 1_000]
    assert backbone.session._wider_bytes == LIMIT - WINDOW


def test_credit_travels_with_the_next_message(backbone: End) -> None:
    backbone.receive(result(1_000, session=9, stream=5))
    backbone.session.consumed(backbone.delivered[0])
    assert backbone.sent() == []

    backbone.session.try_send(dispatch(session=9))

    sent = backbone.sent()
    assert [frame.type for frame in sent] == [FrameType.DISPATCH, FrameType.CREDIT]
    assert (sent[1].session, read_credit(sent[1])) == (9, 1_032)


def test_bytes_of_an_earlier_session_or_a_peer_that_left_are_not_granted(worker: End, backbone: End) -> None:
    worker.receive(dispatch())
    worker.session.consumed(dispatch(9_000, session=4))
    worker.session.consumed(dispatch(9_000, stream=STREAM + 1))
    backbone.receive(result(session=9, stream=5))
    backbone.session.forget_peer(9)
    backbone.session.consumed(result(9_000, session=9, stream=5))

    for end in (worker, backbone):
        end.session.grant_due()
        assert end.sent() == []


def test_a_peer_that_takes_no_answers_gets_no_credit_for_more(worker: End, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_session, "OUTBOX_BYTES", 20_000)
    worker.receive(dispatch(4_000))
    for request in range(4):
        worker.session.send(result(9_000, request=request + 1))
    worker.session.consumed(worker.delivered[0])

    assert [frame.type for frame in worker.sent()] == [FrameType.RESULT]
    worker.receive(credit_frame(10_000, stream=STREAM))

    assert [frame.type for frame in worker.sent()] == [FrameType.RESULT, FrameType.CREDIT]


def test_a_backbone_sends_all_of_a_request_or_nothing(backbone: End) -> None:
    assert backbone.session.try_send(dispatch(9_000, session=9))
    assert not backbone.session.try_send(dispatch(1_000, session=9))
    assert backbone.session.try_send(dispatch(9_000, session=10))
    backbone.receive(credit_frame(5_000, session=9))
    assert backbone.session.try_send(dispatch(1_000, session=9))

    assert [frame.session for frame in backbone.sent()] == [9, 10, 9]


def test_a_grant_from_a_stranger_is_no_harm_and_one_above_the_limit_is_a_violation(backbone: End) -> None:
    backbone.receive(credit_frame(50, session=1234))
    backbone.session.try_send(dispatch(session=9))

    with pytest.raises(ProtocolViolation):
        backbone.receive(credit_frame(LIMIT, session=9))


def test_a_relay_that_wants_to_close_is_noticed(worker: End) -> None:
    worker.receive(Frame(FrameType.DRAIN))

    assert worker.session.is_moving
    assert worker.session.is_open


@pytest.mark.parametrize("queue", [lambda end: end.receive(ping_frame(bytes(8))), lambda end: end.session.grant_due()])
def test_on_queued_is_called_only_when_there_is_something(queue: Callable[[End], None]) -> None:
    calls: list[int] = []
    end = End(Role.WORKER)
    end.session = ClientSession(
        Role.WORKER, hello_json(), end.delivered.append, None, lambda: calls.append(end.session.is_open)
    )
    end.session.take()
    end.welcome()

    queue(end)

    assert len(calls) == len(end.sent())
