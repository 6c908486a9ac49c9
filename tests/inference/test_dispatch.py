"""The dispatcher: bit-identical logits for every placement and every fault, and counts that add up."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from inference.audit import TRUSTED_PASSES, Auditor
from inference.backend import ExpertCall, SwarmBackend
from inference.challenge import ExpertOracle
from inference.dispatch import Dispatcher, DispatchPolicy
from inference.gguf_index import open_index
from inference.kernel import CpuRuntime, kernel_class_name
from inference.llama import Context
from inference.replica_table import Replica, ReplicaTable
from inference.rows import Float32Array, IntArray, RowType
from inference.work_report import Moment, RowPlace
from relay.frames import ResultDtype
from relay.work import Dispatch, Failed, OnDone, Outcome, Result
from tests.inference.decode import decode_steps, plain_logits, settings_for
from tests.inference.loopback import Loopback, LoopbackWorker
from tests.inference.models import DEMO_MODEL, demo_model

EVERYTHING = [(layer, 0, 32) for layer in range(8)]
SEQUENCES, STEPS = 9, 6
PAIRS = SEQUENCES * STEPS * 8 * 4


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    return plain_logits(DEMO_MODEL, tmp_path_factory.mktemp("plain") / "plain.npy", sequences=SEQUENCES, steps=STEPS)


class Swarm:
    """A dispatcher over loopback workers, run through llama.cpp."""

    def __init__(self, transport: Loopback, policy: DispatchPolicy) -> None:
        self.transport = transport
        self.dispatcher = Dispatcher(transport, layers=8, experts_per_layer=32, policy=policy)
        self.use([replica for worker in transport.workers.values() for replica in worker.replicas])

    def use(self, replicas: list[Replica]) -> None:
        self.dispatcher.set_replicas(ReplicaTable(replicas, experts_per_layer=32))

    def audited(self, seed: int | None = None) -> Auditor:
        """Audits with the model itself; the caller stops the auditor."""
        auditor = Auditor(
            ModelOracle(),
            kernel_class_name(),
            lambda finding: self.dispatcher.ban(finding.who.node_id),
            seed=seed,
        )
        self.dispatcher.auditor = auditor
        auditor.start()
        return auditor

    def logits(self, steps: int = STEPS) -> np.ndarray:
        backend = SwarmBackend.install(self.dispatcher)
        backend.takes_weights = self.dispatcher.policy.is_compact
        try:
            with backend.lane(0, 1):
                context = Context(demo_model(), settings_for(SEQUENCES, 1))
            with context:
                return decode_steps(demo_model(), context, SEQUENCES, steps)
        finally:
            backend.handler = ExpertCall.compute_all
            backend.takes_weights = False


Build = Callable[..., Swarm]


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Build]:
    with ExitStack() as stack:

        def make(*holdings: list[tuple[int, int, int]], **policy: object) -> Swarm:
            workers = [
                LoopbackWorker(DEMO_MODEL, tmp_path, session, ranges) for session, ranges in enumerate(holdings, 1)
            ]
            transport = Loopback(workers)
            stack.callback(transport.close)
            return Swarm(transport, DispatchPolicy(**policy))  # type: ignore[arg-type]

        yield make


@pytest.mark.parametrize("row_type", [RowType.F32, RowType.Q8])
def test_all_experts_elsewhere_give_the_same_bits(build: Build, plain: np.ndarray, row_type: RowType) -> None:
    swarm = build(EVERYTHING, row_type=row_type, deadline_seconds=60.0)

    logits = swarm.logits()

    assert np.array_equal(logits, plain)
    report = swarm.dispatcher.take_report()
    assert report.places == {RowPlace.REMOTE: PAIRS}
    assert sum(report.used_rows.values()) == PAIRS
    assert int(report.demand.sum()) == PAIRS
    assert swarm.dispatcher.take_report().places == {}


def test_uncovered_experts_are_computed_here(build: Build, plain: np.ndarray) -> None:
    swarm = build([(layer, 5, 20) for layer in range(0, 8, 2)], deadline_seconds=60.0)

    logits = swarm.logits()

    report = swarm.dispatcher.take_report()
    assert np.array_equal(logits, plain)
    assert report.places[RowPlace.REMOTE] > 0
    assert report.places[RowPlace.REMOTE] + report.places[RowPlace.UNCOVERED] == PAIRS
    covered = int(report.demand[0:8:2, 5:20].sum())
    assert report.places[RowPlace.REMOTE] == covered


def test_all_rows_of_an_expert_go_to_one_of_its_replicas(build: Build, plain: np.ndarray) -> None:
    swarm = build(EVERYTHING, EVERYTHING, deadline_seconds=60.0)

    logits = swarm.logits()

    assert np.array_equal(logits, plain)
    first, second = (worker.requests for worker in swarm.transport.workers.values())
    assert first
    assert second
    assert sum(len(request.pairs) for request in (*first, *second)) == PAIRS


def test_a_row_is_sent_once_per_owner(build: Build) -> None:
    swarm = build(EVERYTHING, deadline_seconds=60.0)

    swarm.logits(steps=1)

    for request in swarm.transport.workers[1].requests:
        assert len(request.rows) == SEQUENCES
        assert len(request.pairs) == SEQUENCES * 4


def failing(code: str) -> Callable[[Dispatch, Outcome], Outcome]:
    return lambda dispatch, outcome: Failed(code, "no")


def not_finite(dispatch: Dispatch, outcome: Outcome) -> Outcome:
    assert isinstance(outcome, Result)
    values = outcome.values.copy()
    values[0, 0] = np.nan
    return Result(values)


@pytest.mark.parametrize(
    ("fault", "place"),
    [
        (failing("stale_fence"), RowPlace.FAILED),
        (not_finite, RowPlace.NOT_FINITE),
        (lambda dispatch, outcome: None, RowPlace.LATE),
    ],
)
def test_a_faulty_owner_changes_no_bit_and_earns_nothing(
    build: Build, plain: np.ndarray, fault: Callable[[Dispatch, Outcome], Outcome | None], place: RowPlace
) -> None:
    swarm = build([(layer, 0, 16) for layer in range(8)], [(layer, 16, 32) for layer in range(8)], deadline_seconds=0.5)
    swarm.transport.workers[2].fault = fault

    logits = swarm.logits()

    report = swarm.dispatcher.take_report()
    assert np.array_equal(logits, plain)
    assert report.places[place] > 0
    assert {key.node_id for key in report.used_rows} == {"node1"}
    assert sum(report.places.values()) == PAIRS
    # After its first failure the owner is left alone for a while.
    assert report.places[RowPlace.PAUSED] > 0


def test_a_worker_that_vanishes_in_the_middle_changes_no_bit(build: Build, plain: np.ndarray) -> None:
    swarm = build(EVERYTHING, deadline_seconds=60.0)
    worker = swarm.transport.workers[1]

    def vanish(dispatch: Dispatch, outcome: Outcome) -> Outcome:
        if len(worker.requests) < 20:
            return outcome
        swarm.use([])
        return Failed("session_left", "gone")

    worker.fault = vanish

    assert np.array_equal(swarm.logits(), plain)


def test_long_steps_and_answers_over_the_cap_stay_here(build: Build, plain: np.ndarray) -> None:
    long_steps = build(EVERYTHING, tokens_limit=SEQUENCES - 1)
    heavy = build(EVERYTHING, owner_bytes_limit=1024, deadline_seconds=60.0)

    assert np.array_equal(long_steps.logits(), plain)
    assert np.array_equal(heavy.logits(), plain)

    assert long_steps.dispatcher.take_report().places == {RowPlace.PREFILL: PAIRS}
    assert heavy.dispatcher.take_report().places == {RowPlace.OVER_CAP: PAIRS}


def test_a_step_is_cut_to_the_measured_cap_of_an_owner_by_whole_experts(build: Build, plain: np.ndarray) -> None:
    swarm = build(EVERYTHING, owner_bytes_limit=20 * 2048, deadline_seconds=60.0)

    logits = swarm.logits()

    report = swarm.dispatcher.take_report()
    assert np.array_equal(logits, plain)
    assert report.places[RowPlace.OVER_CAP] > 0
    assert report.places[RowPlace.REMOTE] > 0
    assert sum(report.places.values()) == PAIRS
    for request in swarm.transport.workers[1].requests:
        assert len(request.pairs) <= 20


def test_what_one_replica_does_not_answer_another_one_does(build: Build, plain: np.ndarray) -> None:
    swarm = build(EVERYTHING, EVERYTHING, deadline_seconds=60.0)
    swarm.logits(steps=2)  # both have a history, so it is known that the other one answers in time
    swarm.dispatcher.take_report()
    swarm.transport.workers[2].fault = failing("overloaded")

    logits = swarm.logits()

    report = swarm.dispatcher.take_report()
    assert np.array_equal(logits, plain)
    assert report.moments[Moment.RETRIED_ROWS] > 0
    assert report.places == {RowPlace.REMOTE: PAIRS}
    assert {key.node_id for key in report.used_rows} == {"node1"}


def short(dispatch: Dispatch, outcome: Outcome) -> Outcome:
    assert isinstance(outcome, Result)
    return Result(outcome.values[:-1])


def test_an_answer_of_the_wrong_shape_is_not_used(build: Build, plain: np.ndarray) -> None:
    swarm = build(EVERYTHING)
    swarm.transport.workers[1].fault = short

    assert np.array_equal(swarm.logits(), plain)

    report = swarm.dispatcher.take_report()
    assert report.places[RowPlace.BAD_SHAPE] > 0
    assert report.failures["node1", "bad_shape"] > 0
    assert not report.used_rows


def test_an_answer_that_comes_late_or_twice_changes_nothing(build: Build, plain: np.ndarray) -> None:
    swarm = build(EVERYTHING, deadline_seconds=60.0)
    submit = swarm.transport.submit_many

    def twice(dispatches: Sequence[tuple[Dispatch, OnDone]]) -> list[int]:
        def again(on_done: OnDone) -> OnDone:
            def deliver(outcome: Outcome) -> None:
                on_done(outcome)
                if isinstance(outcome, Result):
                    on_done(Result(outcome.values + 1))

            return deliver

        return submit([(dispatch, again(on_done)) for dispatch, on_done in dispatches])

    swarm.transport.submit_many = twice  # type: ignore[method-assign]

    assert np.array_equal(swarm.logits(), plain)
    assert swarm.dispatcher.take_report().places == {RowPlace.REMOTE: PAIRS}


def test_an_aborted_step_cancels_its_requests_and_ends_at_once(build: Build, plain: np.ndarray) -> None:
    swarm = build(EVERYTHING, deadline_seconds=60.0)

    def silent(dispatch: Dispatch, outcome: Outcome) -> Outcome | None:
        swarm.dispatcher.abort(0)
        return None

    swarm.transport.workers[1].fault = silent

    began = time.monotonic()
    logits = swarm.logits()

    report = swarm.dispatcher.take_report()
    assert np.array_equal(logits, plain)
    assert time.monotonic() - began < 30
    assert report.places == {RowPlace.ABORTED: PAIRS}
    assert not report.failures
    assert len(swarm.transport.cancelled) == len(swarm.transport.workers[1].requests)


def test_a_banned_node_is_left_alone_until_it_comes_back(build: Build) -> None:
    swarm = build(EVERYTHING)
    replicas = swarm.transport.workers[1].replicas

    swarm.dispatcher.ban("node1")
    swarm.logits(steps=1)
    banned = len(swarm.transport.workers[1].requests)
    swarm.use([])
    swarm.use(replicas)
    swarm.logits(steps=1)

    assert banned == 0
    assert swarm.transport.workers[1].requests


def test_owners_of_another_kernel_class_are_not_used_when_the_policy_names_one(build: Build) -> None:
    swarm = build(EVERYTHING, kernel_class="wasm")

    swarm.logits(steps=1)

    assert swarm.transport.workers[1].requests == []


def test_it_prefers_the_faster_of_two_replicas(build: Build) -> None:
    swarm = build(EVERYTHING, EVERYTHING, deadline_seconds=60.0)

    def slow(dispatch: Dispatch, outcome: Outcome) -> Outcome:
        time.sleep(0.01)
        return outcome

    swarm.transport.workers[2].fault = slow
    swarm.logits()

    times = swarm.dispatcher.owner_times()

    fast, late = (sum(len(r.pairs) for r in worker.requests) for worker in swarm.transport.workers.values())
    assert times["node1"][0] < times["node2"][0]
    assert fast > 1.5 * late


class ModelOracle:
    """The model's own experts, for audits."""

    def __init__(self) -> None:
        self._oracle = ExpertOracle(open_index(DEMO_MODEL), CpuRuntime(1))

    def compute(self, layer: int, rows: Float32Array, expert_ids: IntArray) -> Float32Array:
        return self._oracle.compute(layer, rows, expert_ids)


def offset(dispatch: Dispatch, outcome: Outcome) -> Outcome:
    assert isinstance(outcome, Result)
    return Result(outcome.values + np.float32(1e-3))


def test_honest_answers_pass_every_audit_before_and_after_use(build: Build, plain: np.ndarray) -> None:
    swarm = build(EVERYTHING, deadline_seconds=60.0)
    auditor = swarm.audited(seed=3)

    logits = swarm.logits()

    assert auditor.wait_idle(30.0)
    auditor.stop()
    assert np.array_equal(logits, plain)
    assert swarm.dispatcher.take_report().places == {RowPlace.REMOTE: PAIRS}
    assert auditor.counts["before"] == TRUSTED_PASSES
    assert auditor.counts["after"] > 0
    assert auditor.counts["failed"] == 0


def test_a_liar_is_caught_before_its_answer_is_used_and_left_alone_from_then_on(
    build: Build, plain: np.ndarray
) -> None:
    swarm = build(
        [(layer, 0, 16) for layer in range(8)], [(layer, 16, 32) for layer in range(8)], deadline_seconds=60.0
    )
    swarm.transport.workers[2].fault = offset
    auditor = swarm.audited()

    logits = swarm.logits()

    auditor.stop()
    report = swarm.dispatcher.take_report()
    assert np.array_equal(logits, plain)
    assert len(swarm.transport.workers[2].requests) == 1
    assert report.failures == {("node2", "audit_failed"): 1}
    assert {key.node_id for key in report.used_rows} == {"node1"}


# A rounding that falls the other way grows through eight layers: single logits may differ by 1, as they do between two
# batch sizes of plain llama.cpp; a wrong sum would differ everywhere.
NEAR = 0.05
TWO_HALVES = [(layer, 0, 16) for layer in range(8)], [(layer, 16, 32) for layer in range(8)]


@pytest.mark.parametrize("result_dtype", [ResultDtype.PARTIAL_F32, ResultDtype.PARTIAL_F16])
def test_partial_sums_come_close_and_move_a_row_per_token(
    build: Build, plain: np.ndarray, result_dtype: ResultDtype
) -> None:
    swarm = build(*TWO_HALVES, result_dtype=result_dtype, deadline_seconds=60.0)
    auditor = swarm.audited(seed=1)

    logits = swarm.logits()

    assert auditor.wait_idle(30.0)
    auditor.stop()
    report = swarm.dispatcher.take_report()
    size = 2 if result_dtype is ResultDtype.PARTIAL_F16 else 4
    rows = sum(len(request.rows) for worker in swarm.transport.workers.values() for request in worker.requests)
    assert np.abs(logits - plain).mean() < NEAR
    assert report.places == {RowPlace.REMOTE: PAIRS}
    assert report.moments[Moment.RECEIVED_BYTES] == rows * 256 * size
    assert (auditor.counts["failed"], auditor.counts["before"]) == (0, 2 * TRUSTED_PASSES)
    assert auditor.counts["after"] > 0


def test_partial_sums_are_mixed_with_local_rows_late_ones_and_workers_that_cannot_add(
    build: Build, plain: np.ndarray
) -> None:
    swarm = build(
        [(layer, 0, 10) for layer in range(8)],
        [(layer, 10, 20) for layer in range(8)],
        [(layer, 20, 26) for layer in range(8)],
        result_dtype=ResultDtype.PARTIAL_F32,
        deadline_seconds=0.5,
    )
    workers = swarm.transport.workers
    workers[2].fault = lambda dispatch, outcome: None
    swarm.use(
        [*workers[1].replicas, *workers[2].replicas, *(replace(one, gives_sums=False) for one in workers[3].replicas)]
    )

    logits = swarm.logits()

    report = swarm.dispatcher.take_report()
    assert np.abs(logits - plain).mean() < NEAR
    assert report.places[RowPlace.LATE] > 0
    assert report.places[RowPlace.UNCOVERED] > 0
    assert workers[3].requests[0].weights is None
    assert sum(report.places.values()) == PAIRS


def test_prompts_go_to_workers_in_compact_mode_only(build: Build) -> None:
    exact = build(EVERYTHING, tokens_limit=1)
    compact = build(EVERYTHING, tokens_limit=1, result_dtype=ResultDtype.PARTIAL_F16, deadline_seconds=60.0)

    exact.logits(steps=1)
    compact.logits(steps=1)

    assert set(exact.dispatcher.take_report().places) == {RowPlace.PREFILL}
    assert set(compact.dispatcher.take_report().places) == {RowPlace.REMOTE}


def test_a_wrong_partial_sum_is_not_used(build: Build, plain: np.ndarray) -> None:
    swarm = build(*TWO_HALVES, result_dtype=ResultDtype.PARTIAL_F32, deadline_seconds=60.0)
    swarm.transport.workers[2].fault = offset
    auditor = swarm.audited()

    logits = swarm.logits()

    auditor.stop()
    assert np.abs(logits - plain).mean() < NEAR
    assert swarm.dispatcher.take_report().failures == {("node2", "audit_failed"): 1}


def test_rows_that_a_worker_held_and_did_not_compute_are_told_as_strain(build: Build, plain: np.ndarray) -> None:
    swarm = build([(0, 0, 16)], [(0, 16, 32)], deadline_seconds=60.0)
    swarm.transport.workers[2].fault = failing("overloaded")

    logits = swarm.logits()

    report = swarm.dispatcher.take_report()
    assert np.array_equal(logits, plain)
    assert np.array_equal(report.missed[0, 16:], report.demand[0, 16:])
    assert report.missed[0, :16].sum() + report.missed[1:].sum() == 0
    report.demand *= 20  # a few steps judge nobody; a minute does
    report.missed *= 20
    strain = swarm.dispatcher.strain(report)
    assert strain[0, 16:].max() == 1.0
    assert strain[0, :16].sum() + strain[1:].sum() == 0.0
