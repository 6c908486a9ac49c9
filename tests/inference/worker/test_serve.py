"""Requests as they come from the relay, answered by a real kernel in its own thread."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from inference.kernel import quantize_rows
from inference.numpy_kernel import NumpyKernel
from inference.rows import TYPE_Q8_0, TYPE_Q8_K
from inference.worker.holdings import Holding, Holdings
from inference.worker.row_budget import RowBudget
from inference.worker.serve import ExpertService
from relay.frames import Frame, FrameType, RowDtype
from relay.messages import Lease, cancel_frame, dispatch_frame, read_refusal, read_result
from tests.inference.slice_builders import LAYER, N_EMBD, built_slice, random_rows
from tests.inference.worker.builders import a_claim

CLAIM = a_claim(claim_id=70, fence=4, layer=LAYER, first=5, last=8)
PAIRS = np.array([[0, 5], [1, 7], [0, 6]], np.uint16)


class Recorder:
    """An outlet that remembers."""

    def __init__(self) -> None:
        self.sent: list[Frame] = []
        self.consumed_bytes = 0
        self.arrived = asyncio.Event()

    def send(self, frame: Frame) -> None:
        self.sent.append(frame)
        self.arrived.set()

    def consumed(self, frame: Frame) -> None:
        self.consumed_bytes += len(frame.body)


class SlowKernel(NumpyKernel):
    """Computes only when the test lets it."""

    def __init__(self) -> None:
        super().__init__(built_slice())
        self.started, self.go = threading.Event(), threading.Event()
        self.computed, self.closed = 0, False

    def compute(self, rows: Any, expert_ids: Any) -> Any:
        self.started.set()
        assert self.go.wait(5)
        self.computed += 1
        return super().compute(rows, expert_ids)

    def close(self) -> None:
        self.closed = True
        super().close()


class BrokenKernel(NumpyKernel):
    def __init__(self) -> None:
        super().__init__(built_slice())

    def compute(self, rows: Any, expert_ids: Any) -> Any:
        raise ZeroDivisionError("a bug")


class Stage:
    """A service over one holding, and what it sent."""

    def __init__(self, kernel: NumpyKernel, queue_limit: int = 8, budget: RowBudget | None = None) -> None:
        self.holding = Holding(CLAIM, "ff" * 32, kernel)
        self.holdings = Holdings()
        self.holdings.add(self.holding)
        self.outlet = Recorder()
        self.service = ExpertService(self.holdings, self.outlet, queue_limit, budget=budget)

    async def answers(self, *frames: Frame) -> list[Frame]:
        for frame in frames:
            self.service.receive(frame)
        assert await self.service.finish(5)
        return self.outlet.sent


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage(NumpyKernel(built_slice()))
    yield stage
    stage.service.close()


@pytest.fixture
async def slow() -> AsyncIterator[tuple[Stage, SlowKernel]]:
    kernel = SlowKernel()
    stage = Stage(kernel, queue_limit=2)
    yield stage, kernel
    kernel.go.set()
    stage.service.close()


def a_request(number: int = 1, **changes: Any) -> Frame:
    fields: dict[str, Any] = {
        "layer": LAYER,
        "session": 9,
        "request": number,
        "lease": Lease(fence=4, claim_id=70),
        "pairs": PAIRS,
        "rows": random_rows(2),
    }
    stream = changes.pop("stream", 3)
    return dispatch_frame(**(fields | changes))._replace(stream=stream)


def expected(pairs: npt.NDArray[np.uint16] = PAIRS) -> npt.NDArray[np.float32]:
    return NumpyKernel(built_slice()).compute(random_rows(2)[pairs[:, 0]], pairs[:, 1].astype(np.int32))


@pytest.mark.parametrize("kind", [FrameType.DISPATCH, FrameType.CHALLENGE])
async def test_a_request_is_answered_with_one_row_per_pair(stage: Stage, kind: FrameType) -> None:
    request = a_request(kind=kind)

    (answer,) = await stage.answers(request)

    assert answer.type is FrameType.RESULT
    assert (answer.request, answer.stream, answer.session, answer.layer) == (1, 3, 9, LAYER)
    assert np.array_equal(read_result(answer, 3, N_EMBD), expected())
    assert stage.outlet.consumed_bytes == len(request.body)


@pytest.mark.parametrize(("row_dtype", "block_type"), [(RowDtype.Q8, TYPE_Q8_K), (RowDtype.Q8_0, TYPE_Q8_0)])
async def test_rows_of_blocks_reach_the_kernel_as_they_are(stage: Stage, row_dtype: RowDtype, block_type: int) -> None:
    wire = quantize_rows(random_rows(2), block_type)

    (answer,) = await stage.answers(a_request(rows=wire, row_dtype=row_dtype))

    values = NumpyKernel(built_slice()).compute(wire[PAIRS[:, 0]], PAIRS[:, 1].astype(np.int32))
    assert np.array_equal(read_result(answer, 3, N_EMBD), values)


async def test_requests_are_answered_in_order(stage: Stage) -> None:
    answers = await stage.answers(*(a_request(number) for number in range(1, 8)))

    assert [answer.request for answer in answers] == [1, 2, 3, 4, 5, 6, 7]
    assert (stage.service.counters.answered, stage.service.counters.rows) == (7, 21)


@pytest.mark.parametrize(
    ("request_frame", "code"),
    [
        (a_request(lease=Lease(fence=3, claim_id=70)), "stale_fence"),
        (a_request(lease=Lease(fence=4, claim_id=71)), "stale_fence"),
        (a_request(layer=LAYER + 1), "unknown_expert"),
        (a_request(pairs=np.array([[0, 5], [1, 8]], np.uint16)), "unknown_expert"),
        (a_request(pairs=np.array([[0, 4]], np.uint16)), "unknown_expert"),
        (a_request(pairs=np.array([[2, 5]], np.uint16)), "bad_body"),
        (a_request(rows=random_rows(2, 128)), "bad_body"),
        (a_request(rows=np.zeros((2, 520), np.uint8), row_dtype=RowDtype.Q8), "bad_body"),
        (a_request()._replace(body=b"short"), "bad_body"),
        (a_request()._replace(pairs=4), "bad_body"),
        (a_request()._replace(rows=7), "bad_body"),
        (a_request()._replace(row_dtype=9), "bad_body"),
    ],
    ids=[
        "old fence", "other claim", "other layer", "expert above", "expert below", "row that is not there",
        "narrow rows", "wide q8 rows", "no lease", "more pairs", "more rows", "unknown dtype",
    ],
)  # fmt: skip
async def test_a_request_that_does_not_fit_is_refused_with_a_code(
    stage: Stage, request_frame: Frame, code: str
) -> None:
    (answer,) = await stage.answers(request_frame)

    assert answer.type is FrameType.ERROR
    assert (answer.request, answer.stream) == (1, 3)
    assert read_refusal(answer).code == code
    assert stage.outlet.consumed_bytes == len(request_frame.body)
    assert stage.service.counters.refused == 1


async def test_a_bug_in_the_kernel_fails_one_request_only(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(BrokenKernel())

    answers = await stage.answers(a_request(1), a_request(2))

    stage.service.close()
    assert [read_refusal(answer).code for answer in answers] == ["internal", "internal"]
    assert "a bug" in caplog.text


async def test_too_many_waiting_requests_are_refused(slow: tuple[Stage, SlowKernel]) -> None:
    stage, kernel = slow
    for number in (1, 2, 3):
        stage.service.receive(a_request(number))
    (refusal,) = stage.outlet.sent
    kernel.go.set()

    answers = await stage.answers()

    assert (refusal.request, read_refusal(refusal).code) == (3, "overloaded")
    assert [answer.request for answer in answers[1:]] == [1, 2]


async def test_a_cancelled_request_is_not_computed(slow: tuple[Stage, SlowKernel]) -> None:
    stage, kernel = slow
    stage.service.receive(a_request(1))
    stage.service.receive(a_request(2))
    await asyncio.to_thread(kernel.started.wait, 5)

    stage.service.receive(cancel_frame(2, stream=3))
    stage.service.receive(cancel_frame(99, stream=3))
    kernel.go.set()
    answers = await stage.answers()

    assert [answer.request for answer in answers] == [1]
    assert kernel.computed == 1
    assert stage.outlet.consumed_bytes == 2 * len(a_request().body)


async def test_a_backbone_that_left_takes_all_its_requests_with_it(slow: tuple[Stage, SlowKernel]) -> None:
    stage, kernel = slow
    stage.service.receive(a_request(1, stream=3))
    stage.service.receive(a_request(1, stream=4))
    await asyncio.to_thread(kernel.started.wait, 5)

    stage.service.receive(cancel_frame(0, stream=3))
    kernel.go.set()
    answers = await stage.answers()

    assert [(answer.stream, answer.request) for answer in answers] == [(4, 1)]


async def test_a_lost_connection_takes_its_requests_with_it(slow: tuple[Stage, SlowKernel]) -> None:
    stage, kernel = slow
    stage.service.receive(a_request(1))
    await asyncio.to_thread(kernel.started.wait, 5)

    stage.service.abandon_all()
    stage.service.receive(a_request(1))  # the same numbers on the next connection mean another request
    kernel.go.set()
    answers = await stage.answers()

    assert [(answer.request, answer.type.name) for answer in answers] == [(1, "RESULT")]
    assert stage.outlet.consumed_bytes == len(a_request().body)
    assert (stage.service.counters.answered, stage.service.counters.cancelled) == (1, 1)


async def test_a_request_number_in_use_is_refused(slow: tuple[Stage, SlowKernel]) -> None:
    stage, kernel = slow

    stage.service.receive(a_request(1))
    stage.service.receive(a_request(1))

    assert [read_refusal(frame).code for frame in stage.outlet.sent] == ["bad_body"]
    kernel.go.set()


async def test_a_dropped_slice_finishes_its_queue_and_is_closed_then(slow: tuple[Stage, SlowKernel]) -> None:
    stage, kernel = slow
    stage.service.receive(a_request(1))
    await asyncio.to_thread(kernel.started.wait, 5)

    stage.service.drop(stage.holding)
    stage.service.receive(a_request(2))
    closed_early = kernel.closed
    kernel.go.set()
    answers = await stage.answers()
    stage.service.close()
    await asyncio.to_thread(stage.service._thread.join, 5)

    assert not closed_early
    assert [(answer.request, answer.type.name) for answer in answers] == [(2, "ERROR"), (1, "RESULT")]
    assert kernel.closed


async def test_finishing_gives_up_after_its_timeout(slow: tuple[Stage, SlowKernel]) -> None:
    stage, _ = slow
    stage.service.receive(a_request(1))

    assert not await stage.service.finish(0.01)


async def test_a_budget_of_rows_sets_the_pace() -> None:
    stage = Stage(NumpyKernel(built_slice()), budget=RowBudget(60.0))
    began = time.monotonic()

    answers = await stage.answers(*(a_request(number) for number in range(1, 5)))  # 3 rows each

    stage.service.close()
    assert [answer.type for answer in answers] == [FrameType.RESULT] * 4
    assert 0.15 < time.monotonic() - began < 1.0
