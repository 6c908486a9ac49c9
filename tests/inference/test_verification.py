"""Verification: a replica is used only after its digest and its answers are right."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from inference.challenge import ExpertOracle
from inference.gguf_index import ModelIndex, open_index
from inference.kernel import CpuRuntime, kernel_class_name
from inference.replica_table import ReplicaTable
from inference.slices import plan_slice, slice_manifest
from inference.verification import Roster, Verdict, Verification, Verifier
from relay.records import Replica, RosterSession
from relay.work import Dispatch, Failed, Outcome, Result
from tests.inference.loopback import Loopback, LoopbackWorker
from tests.inference.models import DEMO_MODEL


class Desk:
    """A verifier over one honest loopback worker, and what it said."""

    def __init__(self, folder: Path) -> None:
        self.index: ModelIndex = open_index(DEMO_MODEL)
        self.worker = LoopbackWorker(DEMO_MODEL, folder, 1, [(2, 4, 9)])
        self.transport = Loopback([self.worker])
        self.tables: list[ReplicaTable] = []
        self.verdicts: list[Verification] = []
        self.oracle = ExpertOracle(self.index, CpuRuntime(1))
        self.verifier = Verifier(
            self.index, self.oracle, self.transport, on_table=self.tables.append, on_verdict=self.verdicts.append
        )
        digest = slice_manifest(plan_slice(self.index, 2, 4, 9)).sha256
        self.held = Replica(claim_id=1000, fence=1, layer=2, first=4, last=9, sha256=digest)

    def roster(self, held: Replica | None = None, kernel_class: str | None = None) -> Roster:
        kernel = kernel_class or kernel_class_name()
        return {1: RosterSession(1, "bob", kernel, "phone", {}, (held or self.held,))}

    def used(self) -> list[int]:
        return [replica.claim_id for replica in self.tables[-1].replicas]

    def close(self) -> None:
        self.oracle.close()
        self.transport.close()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.close()


def test_an_honest_replica_is_verified_once_and_then_used(desk: Desk) -> None:
    retry = desk.verifier.step(desk.roster())
    desk.verifier.step(desk.roster())

    assert not retry
    assert [(v.node_id, v.claim_id, v.fence, v.verdict) for v in desk.verdicts] == [("bob", 1000, 1, Verdict.PASSED)]
    assert len(desk.tables[0].replicas) == 0
    assert desk.used() == [1000]
    assert [request.kind for request in desk.worker.requests] == ["challenge"]


def test_a_live_replica_is_used_without_another_challenge(desk: Desk) -> None:
    desk.verifier.step(desk.roster(dataclasses.replace(desk.held, state="live")))

    assert desk.used() == [1000]
    assert desk.worker.requests == []


def test_a_wrong_digest_is_refused_without_a_challenge(desk: Desk) -> None:
    desk.verifier.step(desk.roster(dataclasses.replace(desk.held, sha256="0" * 64)))

    assert [v.verdict for v in desk.verdicts] == [Verdict.WRONG_DIGEST]
    assert desk.used() == []
    assert desk.worker.requests == []


def lying(dispatch: Dispatch, outcome: Outcome) -> Outcome:
    assert isinstance(outcome, Result)
    return Result(outcome.values * np.float32(1.5))


def test_a_wrong_answer_is_final_for_this_lease(desk: Desk) -> None:
    desk.worker.fault = lying
    desk.verifier.step(desk.roster())
    desk.worker.fault = lambda dispatch, outcome: outcome

    desk.verifier.step(desk.roster())

    assert [v.verdict for v in desk.verdicts] == [Verdict.WRONG_ANSWER]
    assert desk.used() == []


def test_another_kernel_class_is_judged_by_tolerance(desk: Desk) -> None:
    def rounded(dispatch: Dispatch, outcome: Outcome) -> Outcome:
        assert isinstance(outcome, Result)
        return Result(outcome.values * np.float32(1 + 1e-6))

    desk.worker.fault = rounded

    desk.verifier.step(desk.roster(kernel_class="wasm-1"))

    assert [v.verdict for v in desk.verdicts] == [Verdict.PASSED]


def test_no_answer_is_no_verdict_and_is_tried_again(desk: Desk) -> None:
    desk.worker.fault = lambda dispatch, outcome: Failed("overloaded", "later")
    retry = desk.verifier.step(desk.roster())
    desk.worker.fault = lambda dispatch, outcome: outcome

    again = desk.verifier.step(desk.roster())

    assert (retry, again) == (True, False)
    assert [v.verdict for v in desk.verdicts] == [Verdict.PASSED]


@pytest.mark.parametrize("change", [{"layer": 99}, {"last": 40}])
def test_a_range_that_the_model_does_not_have_is_never_used(desk: Desk, change: dict[str, int]) -> None:
    desk.verifier.step(desk.roster(dataclasses.replace(desk.held, state="live", **change)))  # type: ignore[arg-type]

    assert desk.used() == []


def test_a_session_that_left_is_not_used_any_more(desk: Desk) -> None:
    desk.verifier.step(desk.roster())

    desk.verifier.step({})

    assert desk.used() == []


def test_the_thread_follows_the_roster(desk: Desk) -> None:
    import time

    desk.verifier.start()
    desk.verifier.set_roster(desk.roster())
    deadline = time.monotonic() + 20
    while (not desk.tables or not desk.used()) and time.monotonic() < deadline:
        time.sleep(0.01)
    desk.verifier.stop()

    assert desk.used() == [1000]
