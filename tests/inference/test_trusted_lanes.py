"""inference/trusted_lanes.py: rows of requests that trust few go to nodes that have earned it, or stay here."""

from pathlib import Path

from inference.audit import Auditor, NodeClass
from inference.backend import ExpertCall, SwarmBackend
from inference.challenge import ExpertOracle
from inference.dispatch import Dispatcher, DispatchPolicy
from inference.engine import Engine
from inference.generation import GenerationRequest
from inference.gguf_index import open_index
from inference.kernel import CpuRuntime, kernel_class_name
from inference.replica_table import Replica, ReplicaTable
from inference.rows import Float32Array
from inference.trusted_lanes import KEPT_SECONDS, TrustedLanes
from tests.inference.loopback import Loopback, LoopbackWorker
from tests.inference.models import DEMO_MODEL
from tests.inference.test_engine import GREEDY, PROMPT
from tests.inference.test_token_places import LAYERS, answered

PASSES = 50


def replica(node: str, session: int, kernel_class: str = "ggml") -> Replica:
    return Replica(session, node, session, 1, 0, 0, 4, kernel_class)


class NoOracle:
    def compute(self, layer: int, rows: object, expert_ids: object) -> Float32Array:
        raise AssertionError("nothing is recomputed here")


def nodes_for(lanes: TrustedLanes, lane: int, table: ReplicaTable) -> list[str]:
    return [one.node_id for one in lanes.table_for(lane, table).replicas]


def test_a_lane_that_asks_for_trust_sees_only_nodes_that_earned_it_with_this_program() -> None:
    auditor = Auditor(NoOracle(), "ggml")
    auditor.trust(NodeClass("bob", "ggml"), PASSES)
    auditor.trust(NodeClass("carol", "ggml"), PASSES - 1)
    auditor.trust(NodeClass("dave", "wasm"), PASSES)
    table = ReplicaTable([replica("bob", 1), replica("carol", 2), replica("dave", 3)], experts_per_layer=4)
    lanes = TrustedLanes(auditor, PASSES)

    lanes.lane(0).required = True
    lanes.lane(1).required = False

    assert nodes_for(lanes, 0, table) == ["bob"]
    assert nodes_for(lanes, 1, table) == ["bob", "carol", "dave"]
    assert nodes_for(lanes, 7, table) == ["bob", "carol", "dave"]


def test_without_an_auditor_nobody_is_trusted() -> None:
    lanes = TrustedLanes(None, PASSES)
    lanes.lane(0).required = True

    table = lanes.table_for(0, ReplicaTable([replica("bob", 1)], experts_per_layer=4))

    assert table.layer(0) is None


def test_new_trust_and_new_replicas_are_noticed() -> None:
    now = [0.0]
    auditor = Auditor(NoOracle(), "ggml")
    lanes = TrustedLanes(auditor, PASSES, clock=lambda: now[0])
    lanes.lane(0).required = True
    table = ReplicaTable([replica("bob", 1)], experts_per_layer=4)
    before = nodes_for(lanes, 0, table)

    auditor.trust(NodeClass("bob", "ggml"), PASSES)
    now[0] += KEPT_SECONDS + 0.1

    assert before == []
    assert nodes_for(lanes, 0, table) == ["bob"]
    assert nodes_for(lanes, 0, ReplicaTable(experts_per_layer=4)) == []


def test_rows_of_a_trusting_request_reach_only_the_trusted_worker_and_the_answer_is_the_same(tmp_path: Path) -> None:
    workers = [
        LoopbackWorker(DEMO_MODEL, tmp_path, session, [(layer, first, first + 16) for layer in range(LAYERS)])
        for session, first in ((1, 0), (2, 16))
    ]
    transport = Loopback(workers)
    auditor = Auditor(ExpertOracle(open_index(DEMO_MODEL), CpuRuntime(1)), kernel_class_name())
    auditor.trust(NodeClass("node1", workers[0].replicas[0].kernel_class), PASSES)
    policy = DispatchPolicy(deadline_seconds=60.0, trusted_passes=PASSES)
    dispatcher = Dispatcher(transport, layers=LAYERS, experts_per_layer=32, policy=policy, auditor=auditor)
    dispatcher.set_replicas(ReplicaTable([*workers[0].replicas, *workers[1].replicas], experts_per_layer=32))
    backend = SwarmBackend.install(dispatcher)
    engine = Engine(
        DEMO_MODEL, sequences=4, context_tokens=256, threads=1, lane_context=backend.lane,
        trusted_lanes=dispatcher.trusted_lanes,
    )  # fmt: skip
    auditor.start()
    engine.start()
    try:
        (secret,) = answered(engine, GenerationRequest("alice", PROMPT, GREEDY, trusted_only=True))
        asked_of = [len(worker.requests) for worker in workers]
        (plain,) = answered(engine, GenerationRequest("bob", PROMPT, GREEDY))
        then_asked_of = [len(worker.requests) for worker in workers]
        answered(
            engine,
            GenerationRequest("alice", PROMPT, GREEDY, trusted_only=True),
            GenerationRequest("bob", PROMPT, GREEDY),
        )
    finally:
        engine.stop()
        auditor.stop()
        backend.handler = ExpertCall.compute_all
        transport.close()

    assert asked_of[0] > 0
    assert asked_of[1] == 0
    assert then_asked_of[1] > 0
    assert [event.token for event in secret] == [event.token for event in plain]
