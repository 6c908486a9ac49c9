"""What the dispatcher remembers between layers: owners' times, counts, whom to leave alone. Every method locks."""

import threading
import time
from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt

from inference.dispatch_policy import DispatchPolicy
from inference.groups import FloatArray, Group
from inference.hot_set_meter import LayerCounts, StepTimes
from inference.owners import Owners
from inference.replica_table import Replica
from inference.work_report import Moment, RowPlace, WorkKey, WorkReport


class Book:
    """Shared by all lanes; `shape` is (layers, experts per layer)."""

    def __init__(self, shape: tuple[int, int], seed: int) -> None:
        self._shape = shape
        self._owners = Owners()
        self._banned: set[str] = set()
        self._report = WorkReport(np.zeros(shape, np.uint64))
        self._layers = LayerCounts(shape)
        self._random = np.random.default_rng(seed)
        self._lock = threading.Lock()

    def set_replicas(self, replicas: Sequence[Replica]) -> None:
        """Forgets owners that are gone; a banned node that is gone may come back (the market keeps it out)."""
        with self._lock:
            self._owners.keep_only({replica.session for replica in replicas})
            self._banned &= {replica.node_id for replica in replicas}

    def ban(self, node_id: str) -> None:
        with self._lock:
            self._banned.add(node_id)

    def costs(self, replicas: Sequence[Replica], kernel_class: str | None) -> FloatArray:
        """(replicas,) expected seconds, infinite for those that must not be used now."""
        now = time.monotonic()
        with self._lock:
            return np.array(
                [
                    float("inf")
                    if replica.node_id in self._banned or kernel_class not in (None, replica.kernel_class)
                    else self._owners.of(replica.session).cost(now)
                    for replica in replicas
                ]
            )

    def draws(self, experts: int) -> FloatArray:
        with self._lock:
            return self._random.random((2, experts))

    def limits(self, session: Hashable, policy: DispatchPolicy) -> tuple[float, float]:
        """(seconds to wait for an answer, bytes to move in one step)."""
        with self._lock:
            return self._owners.of(session).limits(policy.deadline_seconds, policy.shortest_deadline_seconds)

    def measured(self, session: Hashable, seconds: float, moved_bytes: int) -> None:
        """An answer came after that time; moved_bytes: of request and answer."""
        with self._lock:
            self._owners.of(session).answered(seconds, moved_bytes)

    def failed(self, group: Group, code: str) -> None:
        with self._lock:
            self._owners.of(group.replica.session).failed(time.monotonic())
            self._report.failures[group.replica.node_id, code] += 1

    def count(
        self,
        layer: int,
        expert_ids: npt.NDArray[np.int32],
        places: Counter[RowPlace],
        moments: Counter[Moment],
        used: Sequence[Group],
        times: StepTimes | None,
        missed: npt.NDArray[np.int32] | None = None,
        hot: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        """One layer's outcome. times: None for a call that was not meant for workers; missed: the expert of each pair
        that a worker holds and did not compute in time; hot (experts,): those that are computed here, whoever holds
        them. They are no demand: the market would call devices to experts for which nobody will ask them."""
        demand = np.bincount(expert_ids.ravel(), minlength=self._shape[1]).astype(np.uint64)
        with self._lock:
            report = self._report
            report.demand[layer] += demand if hot is None else np.where(hot, 0, demand)
            if missed is not None:
                np.add.at(report.missed[layer], missed, 1)
            if times is not None:
                self._layers.add(layer, demand, times)
            report.places.update(places)
            report.moments.update(moments)
            for group in used:
                replica = group.replica
                report.used_rows[WorkKey(replica.node_id, replica.claim_id, layer)] += len(group.tokens)
                report.places[RowPlace.REMOTE] += len(group.tokens)

    def take_report(self) -> WorkReport:
        with self._lock:
            report, self._report = self._report, WorkReport(np.zeros(self._shape, np.uint64))
        return report

    def layer_counts(self) -> LayerCounts:
        """Running sums of what calls asked for and how long they took."""
        with self._lock:
            return self._layers.copy()

    def times(self) -> dict[Hashable, tuple[float, float, int]]:
        """Session -> (smoothed seconds, mean deviation, answers)."""
        with self._lock:
            return {
                session: (owner.smoothed_seconds, owner.deviation_seconds, owner.answers)
                for session, owner in self._owners.items()
            }
