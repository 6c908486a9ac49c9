"""inference/layer_step.py: in which form rows leave for workers of different abilities, how many may leave, and where
the time of a layer goes."""

import threading
import time
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from inference.dispatch_book import Book
from inference.dispatch_policy import DispatchPolicy
from inference.kernel import quantize_rows
from inference.layer_step import LayerStep
from inference.replica_table import Replica, ReplicaTable
from inference.rows import TYPE_Q8_0, TYPE_Q8_K, RowType
from relay.work import Dispatch, Failed, Outcome, Result

TOKENS, EXPERTS, WIDTH = 3, 8, 256
# With it the quicker of two owners is drawn for each of the first three experts.
SEED = 3


class Call:
    """Stands for `ExpertCall`: every token at one expert of each half."""

    layer, lane_number = 0, 0
    weights = weighted = None

    def __init__(self, block_type: int | None) -> None:
        self.block_type = block_type
        self.hidden = np.random.default_rng(1).standard_normal((TOKENS, WIDTH), dtype=np.float32)
        self.expert_ids = np.array([[0, 4], [1, 5], [2, 6]], np.int32)
        self.output = np.zeros((TOKENS, 2, WIDTH), np.float32)

        self.computed_here = 0

    def compute(self, tokens: np.ndarray, slots: np.ndarray) -> None:
        self.computed_here += len(tokens)


class Recorder:
    """A transport that answers at once with zeros, or for `failing` with an error, and keeps what it was given."""

    def __init__(self, failing: str = "") -> None:
        self.sent: dict[object, list[Dispatch]] = {}
        self._failing = failing

    def submit_many(self, dispatches: Sequence[tuple[Dispatch, Callable[[Outcome], None]]]) -> list[int]:
        for dispatch, on_done in dispatches:
            self.sent.setdefault(dispatch.session, []).append(dispatch)
            values = np.zeros((len(dispatch.pairs), WIDTH), np.float32)
            on_done(Failed("overloaded", "too much") if dispatch.session == self._failing else Result(values))
        return list(range(len(dispatches)))

    def cancel(self, requests: Sequence[int]) -> None:
        raise AssertionError("every answer is there at once")


def sent(block_type: int | None, row_type: RowType = RowType.Q8) -> tuple[Call, dict[object, Dispatch]]:
    """What one layer sends to "new" (experts 0-3, takes Q8_0) and "old" (experts 4-7, does not say so)."""
    replicas = [
        Replica("new", "node1", 1, 1, 0, 0, 4, "", takes_q8_0=True),
        Replica("old", "node2", 2, 1, 0, 4, 8, ""),
    ]
    layer = ReplicaTable(replicas, experts_per_layer=EXPERTS).layer(0)
    assert layer is not None
    call, transport = Call(block_type), Recorder()
    step = LayerStep(transport, Book((1, EXPERTS), 0), DispatchPolicy(row_type=row_type), None, call, layer)  # type: ignore[arg-type]
    step.run()
    assert call.computed_here == 0, "everything is remote here"
    return call, {session: requests[0] for session, requests in transport.sent.items()}


def test_q8_0_rows_go_to_workers_that_say_they_take_them_and_float32_to_the_others() -> None:
    call, requests = sent(TYPE_Q8_0)

    assert (requests["new"].row_dtype, requests["old"].row_dtype) == (RowType.Q8_0, RowType.F32)
    assert np.array_equal(requests["new"].rows, quantize_rows(call.hidden, TYPE_Q8_0))
    assert np.array_equal(requests["old"].rows, call.hidden)


@pytest.mark.parametrize(
    ("block_type", "policy", "expected"),
    [
        (TYPE_Q8_K, RowType.Q8, RowType.Q8),
        (TYPE_Q8_K, RowType.F32, RowType.F32),
        (TYPE_Q8_0, RowType.F32, RowType.F32),
        (None, RowType.Q8, RowType.F32),
    ],
)
def test_every_worker_takes_q8_and_float32_rows(block_type: int | None, policy: RowType, expected: RowType) -> None:
    _, requests = sent(block_type, policy)

    assert {request.row_dtype for request in requests.values()} == {expected}


def test_what_is_asked_of_a_second_replica_stays_within_its_cap_too() -> None:
    """ "quick" fails at once with three experts; of "slow", which has three of its own, one more may be asked."""
    replicas = [Replica("quick", "node1", 1, 1, 0, 0, 4, ""), Replica("slow", "node2", 2, 1, 0, 0, 8, "")]
    layer = ReplicaTable(replicas, experts_per_layer=EXPERTS).layer(0)
    assert layer is not None
    book = Book((1, EXPERTS), seed=SEED)
    book.measured("quick", 0.001, 100_000)
    book.measured("slow", 0.002, 100_000)
    call, transport = Call(None), Recorder(failing="quick")
    policy = DispatchPolicy(row_type=RowType.F32, owner_bytes_limit=4 * 8 * WIDTH + 100)

    step = LayerStep(transport, book, policy, None, call, layer)  # type: ignore[arg-type]
    step.run()

    asked = {session: [len(one.pairs) for one in requests] for session, requests in transport.sent.items()}
    assert asked == {"quick": [3], "slow": [3, 1]}
    assert call.computed_here == 2


class Late(Recorder):
    """Answers from a thread of its own, after DELAY."""

    def submit_many(self, dispatches: Sequence[tuple[Dispatch, Callable[[Outcome], None]]]) -> list[int]:
        threading.Timer(DELAY, super().submit_many, [dispatches]).start()
        return list(range(len(dispatches)))


class Slow(Call):
    """Takes half of DELAY to compute anything."""

    def compute(self, tokens: np.ndarray, slots: np.ndarray) -> None:
        time.sleep(DELAY / 2)
        super().compute(tokens, slots)


DELAY = 0.2


def test_the_time_of_a_layer_is_that_of_its_parts() -> None:
    """Experts 4-7 are nobody's: they are computed here while the answer for the others is on its way."""
    layer = ReplicaTable([Replica("one", "node", 1, 1, 0, 0, 4, "")], experts_per_layer=EXPERTS).layer(0)
    assert layer is not None
    policy = DispatchPolicy(shortest_deadline_seconds=10.0, deadline_seconds=10.0)
    step = LayerStep(Late(), Book((1, EXPERTS), 0), policy, None, Slow(TYPE_Q8_0), layer)  # type: ignore[arg-type]

    began = time.monotonic()
    step.run()
    took = time.monotonic() - began

    times = step.times
    parts = times.dispatch_seconds + times.local_seconds + times.idle_seconds + times.combine_seconds
    assert times.local_seconds == pytest.approx(DELAY / 2, abs=DELAY / 4)
    assert 0 < times.idle_seconds < DELAY
    assert times.wait_seconds >= DELAY * 0.9, "of the answer, whatever was done meanwhile"
    assert times.dispatch_seconds > 0
    assert times.combine_seconds > 0
    assert times.fallback_seconds < DELAY / 4
    assert parts + times.fallback_seconds == pytest.approx(took, rel=0.05)
