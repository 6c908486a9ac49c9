"""relay/credit.py: what costs credit, and that the two ends of a window never disagree to the sender's harm."""

import random

import pytest

from relay.credit import CREDIT_BYTES, CREDIT_LIMIT_BYTES, ReceiveWindow, SendWindow, body_cost, cost
from relay.errors import CreditExceeded
from relay.frames import CHUNK_BYTES, FLAG_RELAY, Frame, FrameType, split_frame


@pytest.mark.parametrize("kind", FrameType)
def test_only_requests_and_answers_cost_credit_header_included(kind: FrameType) -> None:
    counted = kind in (FrameType.DISPATCH, FrameType.CHALLENGE, FrameType.STEP, FrameType.RESULT, FrameType.ERROR)

    assert cost(Frame(kind, body=bytes(10))) == (42 if counted else 0)
    assert cost(Frame(kind, flags=FLAG_RELAY, body=bytes(10))) == 0


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES])
def test_the_cost_of_a_body_is_that_of_its_chunks(size: int) -> None:
    frame = Frame(FrameType.RESULT, body=bytes(size))

    assert body_cost(size) == sum(cost(chunk) for chunk in split_frame(frame))


def test_a_window_spends_all_or_nothing() -> None:
    window = SendWindow(initial=100, limit=200)

    assert not window.take(101)
    assert window.take(100)
    assert not window.take(1)
    window.grant(200)
    with pytest.raises(CreditExceeded):
        window.grant(1)
    assert window.remaining == 200


def test_a_receiver_opens_its_window_to_the_target_with_the_first_grant() -> None:
    window = ReceiveWindow(initial=100, target=250)

    window.consume(60)
    assert window.take_due() == 60 + 150
    window.consume(100)
    assert window.take_due() == 100
    assert window.take_due() == 0


def test_credit_becomes_urgent_at_a_quarter_of_the_window() -> None:
    window = ReceiveWindow(initial=400, target=400)

    window.consume(99)
    assert not window.is_urgent()
    window.consume(1)
    assert window.is_urgent()


def test_a_relay_that_counts_later_and_grants_earlier_never_blames_an_honest_sender() -> None:
    source = random.Random(5)
    sender, relay, receiver = SendWindow(), SendWindow(), ReceiveWindow()
    to_relay: list[int] = []
    to_receiver: list[int] = []
    to_sender: list[int] = []

    for _ in range(20_000):
        match source.randrange(4):
            case 0:
                size = source.randint(1, 200_000)
                if sender.take(size):
                    to_relay.append(size)
            case 1 if to_relay:
                size = to_relay.pop(0)
                assert relay.take(size)
                to_receiver.append(size)
            case 2 if to_receiver:
                receiver.consume(to_receiver.pop(0))
                granted = receiver.take_due()
                relay.grant(granted)
                to_sender.append(granted)
            case 3 if to_sender:
                sender.grant(to_sender.pop(0))
        assert sender.remaining <= relay.remaining <= CREDIT_LIMIT_BYTES

    assert receiver.size == CREDIT_LIMIT_BYTES > CREDIT_BYTES
