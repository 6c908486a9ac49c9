"""inference/hot_set_keeper.py: over a real dispatcher and real kernels; hot rows stay here, bits stay the same."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from inference.backend import ExpertCall, SwarmBackend
from inference.dispatch import Dispatcher, DispatchPolicy
from inference.gguf_index import open_index
from inference.hot_set import HotBudget, unpack_flags
from inference.hot_set_keeper import HostMemory, HotSetKeeper, core_share
from inference.llama import Context
from inference.replica_table import ReplicaTable
from inference.work_report import RowPlace
from tests.inference.decode import decode_steps, plain_logits, settings_for
from tests.inference.loopback import Loopback, LoopbackWorker
from tests.inference.models import DEMO_MODEL, demo_model

SEQUENCES, STEPS = 4, 4
PAIRS = SEQUENCES * STEPS * 8 * 4


@pytest.fixture
def dispatcher(tmp_path: Path) -> Iterator[Dispatcher]:
    with ExitStack() as stack:
        transport = Loopback([LoopbackWorker(DEMO_MODEL, tmp_path, 1, [(layer, 0, 32) for layer in range(8)])])
        stack.callback(transport.close)
        found = Dispatcher(transport, layers=8, experts_per_layer=32, policy=DispatchPolicy(deadline_seconds=60.0))
        found.set_replicas(ReplicaTable(transport.workers[1].replicas, experts_per_layer=32))
        yield found


def logits(dispatcher: Dispatcher) -> np.ndarray:
    backend = SwarmBackend.install(dispatcher)
    try:
        with backend.lane(0, 1):
            context = Context(demo_model(), settings_for(SEQUENCES, 1))
        with context:
            return decode_steps(demo_model(), context, SEQUENCES, STEPS)
    finally:
        backend.handler = ExpertCall.compute_all


def test_hot_experts_are_computed_here_with_the_same_bits(dispatcher: Dispatcher, tmp_path: Path) -> None:
    plain = plain_logits(DEMO_MODEL, tmp_path / "plain.npy", sequences=SEQUENCES, steps=STEPS)
    index = open_index(DEMO_MODEL)
    budget = HotBudget(20 * index.layers[0].expert_bytes, seconds=10.0)
    keeper = HotSetKeeper(index, dispatcher, budget)

    before = logits(dispatcher)
    dispatcher.take_report()
    keeper.step()
    after = logits(dispatcher)
    report = dispatcher.take_report()
    places, hot = report.places, keeper.plan.flags
    status = keeper.status()
    keeper.stop()
    logits(dispatcher)

    assert np.array_equal(before, plain)
    assert np.array_equal(after, plain)
    assert places[RowPlace.HOT] > 0.15 * PAIRS  # 20 of 256 experts
    assert places[RowPlace.HOT] + places[RowPlace.REMOTE] == PAIRS
    assert report.demand[hot].sum() == 0  # the market must not call devices to them
    assert report.demand[~hot].sum() == places[RowPlace.REMOTE]
    assert (status["experts"], status["pinned_bytes"]) == (20, status["bytes"])
    assert int(unpack_flags(status["flags"], 8, 32).sum()) == 20
    assert dispatcher.take_report().places == {RowPlace.REMOTE: PAIRS}


def test_without_bytes_nothing_is_planned(dispatcher: Dispatcher) -> None:
    keeper = HotSetKeeper(open_index(DEMO_MODEL), dispatcher, HotBudget(0))

    keeper.start()
    keeper.stop()

    assert not keeper.is_on
    assert keeper.status()["experts"] == 0


def test_a_file_larger_than_ram_cuts_the_budget_and_is_told(dispatcher: Dispatcher) -> None:
    memory = HostMemory(ram_bytes=16 << 30, file_bytes=70 << 30, routed_bytes=63 << 30)
    keeper = HotSetKeeper(open_index(DEMO_MODEL), dispatcher, HotBudget(32 << 30), memory=memory)

    status = keeper.status()
    keeper.stop()

    assert keeper.budget.uncovered_first
    assert status["budget_bytes"] == 8 << 30  # RAM less 1 GiB for the rest and 7 GiB of dense weights
    assert status["on_disk_bytes"] == 55 << 30


def test_lanes_that_outnumber_the_cores_use_a_part_of_the_wait() -> None:
    assert core_share(1, 1) == 1.0
    assert core_share(1 << 20, 1) < 0.01
