"""One expert layer of one step, spread over its owners: group, send, compute the rest here, wait, fall back.

A pair is (token, slot): the slot-th expert that the router chose for a token. All pairs of one expert go to one owner
(the exactness rule of `inference.kernel`), all pairs of one owner's claim in one frame with each row sent once. While
the answers are on their way the uncovered pairs are computed here; what is late, failed, lost or not finite is computed
here afterwards. So a layer always ends with every row written, whatever the workers do.

The dispatcher knows hidden states, expert ids, replicas and a transport; it knows nothing of claims' prices or sockets.
"""

import functools
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from inference.backend import ExpertCall
from inference.kernel import quantize_rows
from inference.owners import Owner, Owners
from inference.replica_table import LayerReplicas, Replica, ReplicaTable
from inference.rows import TYPE_Q8_K, ByteArray, Float32Array, RowType
from inference.work_report import RowPlace, WorkKey, WorkReport
from relay.work import Dispatch, Failed, Outcome

IndexArray = npt.NDArray[np.intp]

RESULT_BYTES = 4  # float32 per value


class Transport(Protocol):
    """Carries requests to workers; answers come in a thread of its own. Implemented by `relay.backbone_link`."""

    def submit_many(self, dispatches: Sequence[tuple[Dispatch, Callable[[Outcome], None]]]) -> list[int]:
        """Queues requests, never blocks; each callback is called once. Returns the request ids."""
        ...

    def cancel(self, requests: Sequence[int]) -> None:
        """Forgets requests: their callbacks are not called any more."""
        ...


@dataclass(frozen=True)
class DispatchPolicy:
    """deadline_seconds: longest wait for one owner; tokens_limit: steps of more tokens (prompts) stay local;
    owner_bytes_limit: bytes sent plus expected per owner, layer and step; row_type: F32, or Q8 where it is exact;
    kernel_class: when set, only owners of this class compute (bit-identical results)."""

    deadline_seconds: float = 2.0
    tokens_limit: int = 128
    owner_bytes_limit: int = 6 << 20
    row_type: RowType = RowType.Q8
    kernel_class: str | None = None


class Group(NamedTuple):
    """The pairs that one replica computes."""

    replica: Replica
    tokens: IndexArray
    slots: IndexArray


class Arrival(NamedTuple):
    """The answer to one group."""

    group: int
    outcome: Outcome
    at: float


class Waiting:
    """Answers to one layer's requests, handed from the transport's thread to the lane's."""

    def __init__(self) -> None:
        self._arrivals: deque[Arrival] = deque()
        self._condition = threading.Condition()

    def arrive(self, group: int, outcome: Outcome) -> None:
        with self._condition:
            self._arrivals.append(Arrival(group, outcome, time.monotonic()))
            self._condition.notify()

    def next(self, until: float) -> Arrival | None:
        """The next answer, or None when `until` (monotonic seconds) passed without one."""
        with self._condition:
            while not self._arrivals:
                remaining = until - time.monotonic()
                if remaining <= 0 or not self._condition.wait(remaining):
                    break
            return self._arrivals.popleft() if self._arrivals else None


class Dispatcher:
    """The handler of `SwarmBackend`; lanes call it from their own threads, the tables may be replaced at any time."""

    def __init__(
        self, transport: Transport, *, layers: int, experts_per_layer: int, policy: DispatchPolicy, seed: int = 0
    ) -> None:
        self.policy = policy
        self._transport = transport
        self._shape = (layers, experts_per_layer)
        self._table = ReplicaTable(experts_per_layer=experts_per_layer)
        self._owners = Owners()
        self._report = self._empty_report()
        self._lock = threading.Lock()
        self._random = np.random.default_rng(seed)

    def set_replicas(self, table: ReplicaTable) -> None:
        """Replaces the table; layers in flight end with the one they began with."""
        with self._lock:
            self._table = table
            self._owners.keep_only({replica.session for replica in table.replicas})

    def replica_count(self) -> int:
        """Replicas in use."""
        return len(self._table.replicas)

    def worker_count(self) -> int:
        """Workers with a replica in use."""
        return len({replica.session for replica in self._table.replicas})

    def take_report(self) -> WorkReport:
        """Everything counted since the last call."""
        with self._lock:
            report, self._report = self._report, self._empty_report()
        return report

    def owner_times(self) -> dict[str, tuple[float, float, int]]:
        """Node id -> (smoothed seconds, mean deviation, answers) of the connected owners."""
        with self._lock:
            nodes = {replica.session: replica.node_id for replica in self._table.replicas}
            return {
                nodes[session]: (owner.smoothed_seconds, owner.deviation_seconds, owner.answers)
                for session, owner in self._owners.items()
                if session in nodes
            }

    def __call__(self, call: ExpertCall) -> None:
        """Fills `call.output`."""
        table = self._table
        places: dict[RowPlace, int] = {}
        layer = table.layer(call.layer)
        pairs = call.expert_ids.size
        if layer is None or len(call.hidden) > self.policy.tokens_limit:
            call.compute_all()
            place = RowPlace.UNCOVERED if layer is None else RowPlace.PREFILL
            self._count(call, {place: pairs}, [])
            return
        owner_of_expert = self._choose(table, layer)
        groups, local = self._group(call, table, owner_of_expert, places)
        if not groups:
            call.compute_all()
            self._count(call, places, [])
            return
        used = self._run(call, groups, local, places)
        self._count(call, places, used)

    # --- choosing and grouping ----------------------------------------------------------------------------------------
    def _choose(self, table: ReplicaTable, layer: LayerReplicas) -> npt.NDArray[np.int64]:
        """(experts,) replica index per expert, -1: nobody, -2: all its owners are paused.

        Power of two choices: of two candidates drawn at random the one whose answers take less time. Source:
        Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing", IEEE TPDS 12(10), 2001.
        """
        now = time.monotonic()
        with self._lock:
            costs = np.array(
                [
                    float("inf") if self._excluded(replica) else self._owners.of(replica.session).cost(now)
                    for replica in table.replicas
                ]
            )
            draws = self._random.random((2, len(layer.counts)))
        experts = np.arange(len(layer.counts))
        first, second = (layer.candidates[experts, (draw * layer.counts).astype(np.intp)] for draw in draws)
        chosen: npt.NDArray[np.int64] = np.where(costs[second] < costs[first], second, first)
        stuck = ~np.isfinite(costs[chosen]) & (layer.counts > 0)
        if stuck.any():  # both draws are paused: take the best of all, if any is not
            every = np.where(layer.candidates[stuck] >= 0, costs[layer.candidates[stuck]], float("inf"))
            best = layer.candidates[stuck, every.argmin(axis=1)]
            chosen[stuck] = np.where(np.isfinite(every.min(axis=1)), best, -2)
        chosen[layer.counts == 0] = -1
        return chosen

    def _excluded(self, replica: Replica) -> bool:
        return self.policy.kernel_class not in (None, replica.kernel_class)

    def _group(
        self, call: ExpertCall, table: ReplicaTable, owner_of_expert: npt.NDArray[np.int64], places: dict[RowPlace, int]
    ) -> tuple[list[Group], IndexArray]:
        """Groups of pairs by replica, and the flat numbers (token x slots + slot) of the pairs that stay here."""
        slots = call.expert_ids.shape[1]
        owners = owner_of_expert[call.expert_ids.ravel()]
        order = np.argsort(owners, kind="stable")
        sorted_owners = owners[order]
        starts = np.flatnonzero(np.diff(sorted_owners, prepend=sorted_owners[0] - 1))
        groups: list[Group] = []
        local: list[IndexArray] = []
        for start, stop in zip(starts, [*starts[1:], len(order)], strict=True):
            owner, flat = int(sorted_owners[start]), order[start:stop]
            if owner < 0:
                _add(places, RowPlace.UNCOVERED if owner == -1 else RowPlace.PAUSED, len(flat))
                local.append(flat)
            elif len(flat) * call.hidden.shape[1] * RESULT_BYTES > self.policy.owner_bytes_limit:
                _add(places, RowPlace.OVER_CAP, len(flat))
                local.append(flat)
            else:
                groups.append(Group(table.replicas[owner], flat // slots, flat % slots))
        return groups, np.concatenate(local) if local else np.empty(0, np.intp)

    # --- running ------------------------------------------------------------------------------------------------------
    def _run(
        self, call: ExpertCall, groups: list[Group], local: IndexArray, places: dict[RowPlace, int]
    ) -> list[Group]:
        """Sends, computes the local share, collects, falls back; returns the groups whose answers were used."""
        waiting = Waiting()
        encoded, row_type = self._encode(call)
        sent_at = time.monotonic()
        requests = self._transport.submit_many(
            [
                (self._request(call, group, encoded, row_type), functools.partial(waiting.arrive, index))
                for index, group in enumerate(groups)
            ]
        )
        slots = call.expert_ids.shape[1]
        if len(local):
            call.compute(local // slots, local % slots)
        with self._lock:
            deadlines = {
                index: sent_at + self._owners.of(group.replica.session).deadline_seconds(self.policy.deadline_seconds)
                for index, group in enumerate(groups)
            }
        used, missing = self._collect(call, groups, waiting, deadlines, sent_at, places)
        if missing:
            self._transport.cancel([requests[index] for index in missing])
            call.compute(
                np.concatenate([groups[index].tokens for index in missing]),
                np.concatenate([groups[index].slots for index in missing]),
            )
        return [groups[index] for index in used]

    def _encode(self, call: ExpertCall) -> tuple[Float32Array | ByteArray, RowType]:
        """All rows of the step in their wire form, quantised once for all owners."""
        block_type = call.block_type if self.policy.row_type is RowType.Q8 else None
        if block_type != TYPE_Q8_K:  # the wire's row dtype q8 is Q8_K alone: receivers tell the width from the size
            return call.hidden, RowType.F32
        return quantize_rows(call.hidden, block_type), RowType.Q8

    @staticmethod
    def _request(call: ExpertCall, group: Group, encoded: Float32Array | ByteArray, row_type: RowType) -> Dispatch:
        """One frame's worth: every row once, pairs (row, expert)."""
        rows, row_of_pair = np.unique(group.tokens, return_inverse=True)
        experts = call.expert_ids[group.tokens, group.slots]
        return Dispatch(
            session=group.replica.session,
            layer=call.layer,
            fence=group.replica.fence,
            claim_id=group.replica.claim_id,
            row_dtype=int(row_type),
            rows=encoded[rows],
            pairs=np.stack([row_of_pair, experts], axis=1).astype(np.uint16),
        )

    def _collect(
        self,
        call: ExpertCall,
        groups: list[Group],
        waiting: Waiting,
        deadlines: dict[int, float],
        sent_at: float,
        places: dict[RowPlace, int],
    ) -> tuple[list[int], list[int]]:
        """Waits for every group or its deadline; (groups used, groups missing)."""
        used: list[int] = []
        missing: list[int] = []
        while deadlines:
            arrival = waiting.next(min(deadlines.values()))
            if arrival is None:
                now = time.monotonic()
                for index in [index for index, deadline in deadlines.items() if deadline <= now]:
                    del deadlines[index]
                    missing.append(index)
                    self._fail(groups[index], RowPlace.LATE, "late", places)
                continue
            if deadlines.pop(arrival.group, None) is None:
                continue  # given up already
            group = groups[arrival.group]
            if isinstance(arrival.outcome, Failed):
                self._fail(group, RowPlace.FAILED, arrival.outcome.code, places)
                missing.append(arrival.group)
            elif not np.isfinite(arrival.outcome.values).all():
                self._fail(group, RowPlace.NOT_FINITE, "not_finite", places)
                missing.append(arrival.group)
            else:
                call.output[group.tokens, group.slots] = arrival.outcome.values
                used.append(arrival.group)
                self._answered(group, arrival.at - sent_at)
        return used, missing

    # --- counting -----------------------------------------------------------------------------------------------------
    def _owner(self, group: Group) -> Owner:
        return self._owners.of(group.replica.session)

    def _answered(self, group: Group, seconds: float) -> None:
        with self._lock:
            self._owner(group).answered(seconds)

    def _fail(self, group: Group, place: RowPlace, code: str, places: dict[RowPlace, int]) -> None:
        _add(places, place, len(group.tokens))
        with self._lock:
            self._owner(group).failed(time.monotonic())
            self._report.failures[group.replica.node_id, code] += 1

    def _count(self, call: ExpertCall, places: dict[RowPlace, int], used: list[Group]) -> None:
        demand = np.bincount(call.expert_ids.ravel(), minlength=self._shape[1])
        with self._lock:
            self._report.demand[call.layer] += demand.astype(np.uint64)
            self._report.places.update(places)
            for group in used:
                replica = group.replica
                self._report.used_rows[WorkKey(replica.node_id, replica.claim_id, call.layer)] += len(group.tokens)
                self._report.places[RowPlace.REMOTE] += len(group.tokens)

    def _empty_report(self) -> WorkReport:
        return WorkReport(np.zeros(self._shape, np.uint64))


def _add(places: dict[RowPlace, int], place: RowPlace, rows: int) -> None:
    places[place] = places.get(place, 0) + rows
