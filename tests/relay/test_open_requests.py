"""relay/open_requests.py: asked, late and unasked answers, chunks, shapes, sessions that leave."""

import numpy as np
import pytest

from relay import open_requests
from relay.frames import CHUNK_BYTES, FLAG_MORE, Frame, FrameType, split_frame
from relay.messages import error_frame, result_frame
from relay.open_requests import NOT_ASKED, Answer, OpenRequests
from relay.work import Failed, Outcome, Result

ASKED = Frame(FrameType.DISPATCH, request=1, rows=2, pairs=2)
VALUES = np.arange(8, dtype=np.float32).reshape(2, 4)


def ignore(outcome: Outcome) -> None:
    raise AssertionError("this table calls nobody")


@pytest.fixture
def requests() -> OpenRequests[str]:
    table: OpenRequests[str] = OpenRequests()
    table.add(1, "bob", 2, 4, ignore)
    return table


def failure(answer: Answer) -> str:
    assert answer.on_done is ignore
    assert isinstance(answer.outcome, Failed)
    return answer.outcome.code


def test_an_answer_is_taken_once(requests: OpenRequests[str]) -> None:
    answer = requests.answer("bob", result_frame(ASKED, VALUES))

    assert answer.is_asked
    assert answer.on_done is ignore
    assert isinstance(answer.outcome, Result)
    assert np.array_equal(answer.outcome.values, VALUES)
    assert len(requests) == 0
    assert requests.answer("bob", result_frame(ASKED, VALUES)) == NOT_ASKED


def test_an_error_is_an_answer(requests: OpenRequests[str]) -> None:
    assert failure(requests.answer("bob", error_frame(ASKED, "stale_fence", "old"))) == "stale_fence"


def test_only_the_worker_that_was_asked_may_answer(requests: OpenRequests[str]) -> None:
    assert requests.answer("carol", result_frame(ASKED, VALUES)) == NOT_ASKED
    assert requests.answer("bob", result_frame(ASKED._replace(request=2), VALUES)) == NOT_ASKED
    assert len(requests) == 1


def test_chunks_are_joined_in_order() -> None:
    table: OpenRequests[str] = OpenRequests()
    values = np.random.default_rng(1).standard_normal((2, CHUNK_BYTES // 4)).astype(np.float32)
    table.add(1, "bob", 2, CHUNK_BYTES // 4, ignore)

    answers = [table.answer("bob", chunk) for chunk in split_frame(result_frame(ASKED, values))]

    assert answers[0] == Answer(is_asked=True)
    assert isinstance(answers[1].outcome, Result)
    assert np.array_equal(answers[1].outcome.values, values)


@pytest.mark.parametrize("frame", [Frame(FrameType.RESULT, chunk=1), Frame(FrameType.RESULT, flags=FLAG_MORE, chunk=2)])
def test_a_chunk_out_of_order_is_a_bad_result(requests: OpenRequests[str], frame: Frame) -> None:
    answer = requests.answer("bob", frame._replace(request=1, pairs=2, body=b"1234"))

    assert failure(answer) == "bad_result"


@pytest.mark.parametrize("shape", [(1, 4), (2, 3), (3, 4), (2, 5)])
def test_an_answer_of_another_shape_is_a_bad_result(requests: OpenRequests[str], shape: tuple[int, int]) -> None:
    frame = result_frame(ASKED._replace(pairs=shape[0]), np.zeros(shape, np.float32))

    assert failure(requests.answer("bob", frame)) == "bad_result"


def test_an_answer_larger_than_asked_for_is_not_paid_for_with_credit(requests: OpenRequests[str]) -> None:
    answer = requests.answer("bob", result_frame(ASKED, np.zeros((2, 4_000), np.float32)))

    assert not answer.is_asked
    assert failure(answer) == "bad_result"


def test_a_cancelled_request_still_expects_its_late_answer_and_tells_nobody(requests: OpenRequests[str]) -> None:
    assert requests.cancel(1) == "bob"
    assert requests.cancel(1) is None
    assert requests.cancel(2) is None
    assert len(requests) == 0

    first = requests.answer("bob", Frame(FrameType.RESULT, flags=FLAG_MORE, request=1, pairs=2, body=bytes(16)))
    last = requests.answer("bob", Frame(FrameType.RESULT, chunk=1, request=1, pairs=2, body=bytes(16)))

    assert first == last == Answer(is_asked=True)
    assert requests.answer("bob", result_frame(ASKED, VALUES)) == NOT_ASKED


def test_a_flood_under_a_cancelled_number_is_not_paid_for_with_credit(requests: OpenRequests[str]) -> None:
    requests.cancel(1)
    chunk = Frame(FrameType.RESULT, flags=FLAG_MORE, request=1, pairs=2, body=bytes(4_000))

    assert [requests.answer("bob", chunk).is_asked for _ in range(3)] == [True, False, False]


def test_it_remembers_only_so_many_cancelled_requests(
    requests: OpenRequests[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_requests, "CANCELLED_LIMIT", 2)
    for request in range(1, 5):
        requests.add(request, "bob", 2, 4, ignore)
        requests.cancel(request)

    asked = [requests.answer("bob", result_frame(ASKED._replace(request=n), VALUES)).is_asked for n in range(1, 5)]

    assert asked == [False, False, True, True]


def test_a_session_that_leaves_gives_back_who_was_waiting(requests: OpenRequests[str]) -> None:
    requests.add(2, "bob", 2, 4, ignore)
    requests.add(3, "carol", 2, 4, ignore)
    requests.cancel(1)

    assert requests.forget("bob") == [ignore]
    assert requests.forget("bob") == []
    assert requests.keys() == ["carol"]
    assert len(requests) == 1
