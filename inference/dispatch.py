"""The experts of llama.cpp's MoE layers, spread over workers: the handler that the expert backend calls.

Each call of a layer is a `LayerStep`. The dispatcher keeps what lasts longer: the table of replicas, owners' times,
counts. It knows hidden states, expert ids, replicas and a transport; it knows nothing of prices or sockets.
"""

import time
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from inference.audit import Auditor
from inference.backend import ExpertCall
from inference.dispatch_book import Book
from inference.dispatch_policy import DispatchPolicy, Transport
from inference.groups import Group
from inference.hot_set_meter import LayerCounts, StepTimes
from inference.layer_step import LayerStep
from inference.replica_table import ReplicaTable
from inference.row_places import RowPlaces, places_of_layer
from inference.slow_steps import SlowSteps
from inference.strain import strain_of
from inference.trusted_lanes import TrustedLanes
from inference.waiting import Waiting
from inference.work_report import Moment, RowPlace, WorkReport

__all__ = ["DispatchPolicy", "Dispatcher", "Transport"]


class Dispatcher:
    """The handler of `SwarmBackend`; lanes call it from their own threads, the tables may be replaced at any time."""

    def __init__(
        self,
        transport: Transport,
        *,
        layers: int,
        experts_per_layer: int,
        policy: DispatchPolicy,
        auditor: Auditor | None = None,
        seed: int = 0,
    ) -> None:
        self.policy = policy
        self.transport = transport
        self.auditor = auditor
        self.shape = (layers, experts_per_layer)
        self.book = Book(self.shape, seed)
        self._table = ReplicaTable(experts_per_layer=experts_per_layer)
        self._hot: npt.NDArray[np.bool_] | None = None
        self._waiting: dict[int, Waiting] = {}
        self.row_places = RowPlaces()
        self.trusted_lanes = TrustedLanes(auditor, policy.trusted_passes)
        self._slow = SlowSteps(policy.slow_step_seconds)

    def set_replicas(self, table: ReplicaTable) -> None:
        """Replaces the table; layers in flight end with the one they began with."""
        self._table = table
        self.book.set_replicas(table.replicas)

    def set_hot(self, flags: npt.NDArray[np.bool_] | None) -> None:
        """Experts that are computed here although a worker holds them: (layers, experts), None: none."""
        self._hot = flags

    def covered(self) -> npt.NDArray[np.bool_]:
        """Experts that a worker holds: (layers, experts)."""
        found = np.zeros(self.shape, bool)
        for replica in self._table.replicas:
            found[replica.layer, replica.first : replica.last] = True
        return found

    def layer_counts(self) -> LayerCounts:
        """Running sums of what calls asked for and how long they took, since the start."""
        return self.book.layer_counts()

    def ban(self, node_id: str) -> None:
        """Uses no replica of this node any more until it has left and come back."""
        self.book.ban(node_id)

    def abort(self, lane: int) -> None:
        """Nobody wants the lane's present step: what workers still owe it is cancelled and computed here at once."""
        waiting = self._waiting.get(lane)
        if waiting is not None:
            waiting.abort()

    def replica_count(self) -> int:
        """Replicas in use."""
        return len(self._table.replicas)

    def worker_count(self) -> int:
        """Workers with a replica in use."""
        return len({replica.session for replica in self._table.replicas})

    def take_report(self) -> WorkReport:
        """Everything counted since the last call."""
        return self.book.take_report()

    def owner_times(self) -> dict[str, tuple[float, float, int]]:
        """Node id -> (smoothed seconds, mean deviation, answers) of the connected owners."""
        nodes = {replica.session: replica.node_id for replica in self._table.replicas}
        return {nodes[session]: times for session, times in self.book.times().items() if session in nodes}

    def strain(self, report: WorkReport) -> npt.NDArray[np.float64]:
        """How badly workers served each expert of theirs in the window of the report: (layers, experts), 0 to 1."""
        return strain_of(report.demand, report.missed, self._table.replicas, self.book.times())

    def __call__(self, call: ExpertCall) -> None:
        """Fills `call.output`."""
        table, hot = self.trusted_lanes.table_for(call.lane_number, self._table), self._hot
        layer = table.layer(call.layer)
        is_compact = self.policy.is_compact and call.weights is not None
        is_prompt = len(call.hidden) > self.policy.tokens_limit and not is_compact
        if layer is None or is_prompt:
            started = time.monotonic()
            call.compute_all()
            place, rows = RowPlace.UNCOVERED if layer is None else RowPlace.PREFILL, call.expert_ids.size
            times = None if is_prompt else StepTimes(0.0, time.monotonic() - started, rows)
            self.book.count(call.layer, call.expert_ids, Counter({place: rows}), Counter(), [], times)
            self._count_places(call, [])
            return
        hot_here = None if hot is None else hot[call.layer]
        step = LayerStep(self.transport, self.book, self.policy, self.auditor, call, layer, hot_here)
        self._waiting[call.lane_number] = step.waiting
        step.run()
        if self._slow.look(call.layer, len(call.hidden), step.waited_seconds, step.waits):
            step.moments[Moment.SLOW_STEPS] += 1
        self.book.count(
            call.layer,
            call.expert_ids,
            step.places,
            step.moments,
            step.used,
            step.times,
            step.missed_experts(),
            hot_here,
        )
        self._count_places(call, step.used)

    def _count_places(self, call: ExpertCall, used: Sequence[Group]) -> None:
        """For the readers that asked where their tokens were computed; nothing while none did."""
        open_lane, hot = self.row_places.open_lane(call.lane_number), self._hot
        if open_lane is not None:
            remote = [group.tokens for group in used]
            open_lane.add(places_of_layer(call.expert_ids, remote, None if hot is None else hot[call.layer]))
