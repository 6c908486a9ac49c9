"""One expert layer of one step, spread over its owners: group, send, compute the rest here, wait, fall back.

All pairs (token, slot) of one expert go to one owner (the exactness rule of `inference.kernel`), all pairs of one
owner's claim in one frame with each row sent once. While the answers are on their way the pairs without an owner and
those of hot experts are computed here. What is late, failed, lost, of a wrong shape or not finite goes to another
replica if time allows, and is computed here otherwise. So a layer always ends with every row written, whatever the
workers do.
"""

import itertools
import time
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from inference.audit import AuditCase, Auditor, NodeClass, Plan, Sums
from inference.backend import ExpertCall
from inference.dispatch_book import Book
from inference.dispatch_policy import DispatchPolicy, Transport
from inference.groups import (
    ALL_PAUSED,
    HERE,
    NOBODY,
    Group,
    IndexArray,
    PairsByOwner,
    best_owners,
    choose_owners,
    split_by_owner,
    within_cap,
)
from inference.hot_set_meter import StepTimes
from inference.replica_table import LayerReplicas, Replica
from inference.rows import Float32Array, is_finite
from inference.slow_steps import ANSWERED, Wait
from inference.step_wire import StepWire
from inference.waiting import Arrival, Waiting
from inference.work_report import Moment, RowPlace
from relay.work import Failed

Values = Float32Array | npt.NDArray[np.float16]
PLACES_HERE = {NOBODY: RowPlace.UNCOVERED, ALL_PAUSED: RowPlace.PAUSED, HERE: RowPlace.HOT}


@dataclass
class Flight:
    """A group on its way. plan: when its answer is audited; moved_bytes: of request and answer."""

    group: Group
    request: int
    sent_at: float
    deadline: float
    plan: Plan
    moved_bytes: int
    is_retry: bool


class LayerStep:
    """The life of one layer call: `run` fills `call.output`; places, moments, used and times are its outcome.

    hot: (experts,) those that are computed here although a worker holds them.
    """

    def __init__(
        self,
        transport: Transport,
        book: Book,
        policy: DispatchPolicy,
        auditor: Auditor | None,
        call: ExpertCall,
        layer: LayerReplicas,
        hot: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        self.waiting = Waiting()
        self.places: Counter[RowPlace] = Counter()
        self.moments: Counter[Moment] = Counter()
        self.used: list[Group] = []
        self._missed: list[IndexArray] = []
        self._transport, self._book, self._policy, self._auditor = transport, book, policy, auditor
        self._call, self._layer, self._hot = call, layer, hot
        # From the end of our own share to that of the last request, and all requests as they ended.
        self.waited_seconds = 0.0
        self.waits: list[Wait] = []
        self._waited = 0.0
        self._landing_seconds = 0.0
        self.times = StepTimes()
        self._slots = call.expert_ids.shape[1]
        self._numbers = itertools.count()
        self._flights: dict[int, Flight] = {}
        # Bytes that each owner moves in this step, there and back.
        self._planned: Counter[Hashable] = Counter()
        self._limits: dict[Hashable, tuple[float, float]] = {}
        self._next_deadline = 0.0
        self._wire: StepWire
        self._missing: list[Group] = []
        self._sums: list[tuple[Group, Values]] = []
        self._give_up_at = 0.0

    def run(self) -> None:
        began = time.monotonic()
        groups, local = self._group()
        if not groups:
            started = time.monotonic()
            self._call.compute_all()
            self.times = StepTimes(0.0, time.monotonic() - started, self._call.expert_ids.size)
            return
        self._give_up_at = time.monotonic() + self._policy.deadline_seconds
        self._wire.encode()
        self._send(groups, is_retry=False)
        # What must be checked before its use is computed here while the answer is on its way.
        here = [local, *(self._flat(flight.group) for flight in self._flights.values() if flight.plan is Plan.BEFORE)]
        here_pairs, started = np.concatenate(here), time.monotonic()
        self._compute(here_pairs)
        local_seconds = time.monotonic() - started
        self._collect()
        collected = time.monotonic()
        self.waited_seconds = collected - started - local_seconds
        if self._missing:
            self._compute(np.concatenate([self._flat(group) for group in self._missing]))
        fell_back = time.monotonic()
        self._weigh()
        self.times = StepTimes(
            self._waited,
            local_seconds,
            len(here_pairs),
            dispatch_seconds=started - began,
            idle_seconds=self.waited_seconds - self._landing_seconds,
            combine_seconds=self._landing_seconds + time.monotonic() - fell_back,
            fallback_seconds=fell_back - collected,
        )

    def _weigh(self) -> None:
        """Where the router's weights are ours to apply: rows times weights, and each partial sum in the place of its
        row's first pair, zeros in the places of the others. llama.cpp adds the places up."""
        call = self._call
        if call.weights is None or call.weighted is None:
            return
        np.multiply(call.output, call.weights[:, :, None], out=call.weighted)
        for group, values in self._sums:
            _, row_of_pair = group.rows
            is_first = np.diff(row_of_pair, prepend=-1) > 0
            call.weighted[group.tokens, group.slots] = 0
            call.weighted[group.tokens[is_first], group.slots[is_first]] = values

    def missed_experts(self) -> npt.NDArray[np.int32] | None:
        """The expert of each pair that a worker holds and did not compute in time; None: there is none."""
        if not self._missed:
            return None
        return self._call.expert_ids.ravel()[np.concatenate(self._missed)]

    def _compute(self, flat: IndexArray) -> None:
        if len(flat):
            self._call.compute(flat // self._slots, flat % self._slots)

    def _flat(self, group: Group) -> IndexArray:
        flat: IndexArray = group.tokens * self._slots + group.slots
        return flat

    # --- grouping -----------------------------------------------------------------------------------------------------
    def _group(self) -> tuple[list[Group], IndexArray]:
        """Groups of pairs by replica, and the flat numbers of the pairs that stay here."""
        costs = self._book.costs(self._layer.replicas, self._policy.kernel_class)
        owners = choose_owners(self._layer, costs, self._book.draws(len(self._layer.counts)))
        if self._hot is not None:
            owners[self._hot & (owners >= 0)] = HERE
        experts = self._call.expert_ids.ravel()
        groups: list[Group] = []
        local: list[IndexArray] = [np.empty(0, np.intp)]
        pairs = PairsByOwner(owners[experts], experts, self._slots)
        self._wire = StepWire(self._call, self._policy, pairs)
        for owner, number, flat in pairs.parts():
            if owner < 0:
                self.places[PLACES_HERE[owner]] += len(flat)
                local.append(flat)
                if owner == ALL_PAUSED:
                    self._missed.append(flat)
                continue
            group, rest = self._cut_to_cap(pairs.group(number, self._layer.replicas[owner]), flat, experts)
            if len(rest):
                self.places[RowPlace.OVER_CAP] += len(rest)
                local.append(rest)
                self._missed.append(rest)
            if len(group.tokens):
                groups.append(group)
        return groups, np.concatenate(local)

    def _cut_to_cap(self, group: Group, flat: IndexArray, experts: npt.NDArray[np.int32]) -> tuple[Group, IndexArray]:
        """The group within what its owner's uplink cap leaves in this step, and the pairs that are too many for it."""
        replica = group.replica
        _, measured = self._limits_of(replica.session)
        cap = min(measured, self._policy.owner_bytes_limit) - self._planned[replica.session]
        moved = self._wire.most_bytes(group)
        if moved <= cap:
            self._planned[replica.session] += moved
            return group, flat[:0]
        pair_bytes = self._wire.pair_bytes()
        kept = within_cap(experts[flat], pair_bytes, cap)
        self._planned[replica.session] += int(kept.sum()) * pair_bytes
        return Group(replica, group.tokens[kept], group.slots[kept]), flat[~kept]

    # --- sending ------------------------------------------------------------------------------------------------------
    def _send(self, groups: list[Group], *, is_retry: bool) -> None:
        numbers = [next(self._numbers) for _ in groups]
        sent_at = time.monotonic()
        requests = self._transport.submit_many(
            [
                (self._wire.request(group), partial(self.waiting.arrive, number))
                for number, group in zip(numbers, groups, strict=True)
            ]
        )
        sent_bytes = 0
        for number, group, request in zip(numbers, groups, requests, strict=True):
            seconds, _ = self._limits_of(group.replica.session)
            sent, moved = self._wire.sent_and_moved_bytes(group)
            plan = self._auditor.plan(owner_of(group.replica)) if self._auditor else Plan.NONE
            self._flights[number] = Flight(group, request, sent_at, sent_at + seconds, plan, moved, is_retry)
            sent_bytes += sent
        self.moments[Moment.SENT_BYTES] += sent_bytes
        self._next_deadline = self._earliest_deadline()

    def _limits_of(self, session: Hashable) -> tuple[float, float]:
        """(seconds to wait, bytes to move) of an owner, asked for once per step."""
        found = self._limits.get(session)
        if found is None:
            found = self._limits[session] = self._book.limits(session, self._policy)
        return found

    # --- collecting ---------------------------------------------------------------------------------------------------
    def _collect(self) -> None:
        """Until every flight has landed, failed for good, or is given up."""
        while self._flights:
            # Of flights that have landed since it may be too early, which costs one look.
            arrival = self.waiting.next(self._next_deadline)
            if self.waiting.is_aborted:
                self._abort()
            elif arrival is None:
                now = time.monotonic()
                for number in [number for number, flight in self._flights.items() if flight.deadline <= now]:
                    self._transport.cancel([self._flights[number].request])
                    self._waited = max(self._waited, now - self._flights[number].sent_at)
                    self._fail(self._flights.pop(number), RowPlace.LATE, "late")
                self._next_deadline = self._earliest_deadline()
            elif arrival.flight in self._flights:  # else: it was given up already
                landing = time.monotonic()
                self._land(self._flights.pop(arrival.flight), arrival)
                self._landing_seconds += time.monotonic() - landing

    def _earliest_deadline(self) -> float:
        return min((flight.deadline for flight in self._flights.values()), default=0.0)

    def _abort(self) -> None:
        self._transport.cancel([flight.request for flight in self._flights.values()])
        for flight in self._flights.values():
            self.places[RowPlace.ABORTED] += len(flight.group.tokens)
            self._missing.append(flight.group)
        self._flights.clear()

    def _land(self, flight: Flight, arrival: Arrival) -> None:
        group, outcome = flight.group, arrival.outcome
        self._waited = max(self._waited, arrival.at - flight.sent_at)
        if isinstance(outcome, Failed):
            self._fail(flight, RowPlace.FAILED, outcome.code)
            return
        values = outcome.values
        self.moments[Moment.RECEIVED_BYTES] += values.nbytes
        shape, kind = self._wire.answer_shape(group)
        if values.shape != shape or values.dtype != kind:
            self._fail(flight, RowPlace.BAD_SHAPE, "bad_shape")
        elif not is_finite(values):
            self._fail(flight, RowPlace.NOT_FINITE, "not_finite")
        elif flight.plan is Plan.BEFORE and not self._is_right(flight, values):
            self._fail(flight, RowPlace.AUDIT_FAILED, "audit_failed")
        else:
            if flight.plan is not Plan.BEFORE:
                self._use(group, values)
            self.used.append(group)
            self._note(flight, arrival.at, ANSWERED)
            self._book.measured(group.replica.session, arrival.at - flight.sent_at, flight.moved_bytes)
            if flight.plan is Plan.AFTER:
                self._audit_later(group, values)

    def _note(self, flight: Flight, ended_at: float, outcome: str) -> None:
        group = flight.group
        self.waits.append(Wait(group.replica.node_id, len(group.tokens), ended_at - flight.sent_at, outcome))

    def _use(self, group: Group, values: Values) -> None:
        if self._wire.gives_sums(group.replica):
            # `weighted` may lie in the memory of `output`, which is still being filled.
            self._sums.append((group, values))
        else:
            self._call.output[group.tokens, group.slots] = values

    def _is_right(self, flight: Flight, values: Values) -> bool:
        """An audit before use, against what was computed here meanwhile."""
        assert self._auditor is not None
        self.moments[Moment.AUDITED_BEFORE] += 1
        if flight.is_retry:  # `run` has computed what was sent first; this was sent later
            self._compute(self._flat(flight.group))
        group = flight.group
        return self._auditor.check(self._case(group, values), self._call.output[group.tokens, group.slots])

    def _audit_later(self, group: Group, values: Values) -> None:
        assert self._auditor is not None
        is_queued = self._auditor.submit(self._case(group, values))
        self.moments[Moment.AUDITED_AFTER if is_queued else Moment.AUDIT_SKIPPED] += 1

    def _case(self, group: Group, values: Values) -> AuditCase:
        """Rows are copied: llama.cpp writes over them after this call."""
        experts = self._call.expert_ids[group.tokens, group.slots]
        sums = None
        if self._wire.gives_sums(group.replica):
            rows, row_of_pair = group.rows
            sums = Sums(row_of_pair, self._wire.weights(group), len(rows), self._wire.sum_kind)
        return AuditCase(
            owner_of(group.replica), self._call.layer, self._call.hidden[group.tokens], experts, values, sums
        )

    # --- falling back -------------------------------------------------------------------------------------------------
    def _fail(self, flight: Flight, place: RowPlace, code: str) -> None:
        """The group goes to other replicas or is computed here; a checked one has been computed here already."""
        self._book.failed(flight.group, code)
        self._note(flight, time.monotonic(), code)
        if flight.plan is Plan.BEFORE and not flight.is_retry:
            self.places[place] += len(flight.group.tokens)
            self._missed.append(self._flat(flight.group))
            return
        elsewhere, local = self._elsewhere(flight)
        if local is not None:
            self.places[place] += len(local.tokens)
            self._missing.append(local)
            self._missed.append(self._flat(local))
        if elsewhere:
            self.moments[Moment.RETRIED_ROWS] += sum(len(group.tokens) for group in elsewhere)
            self._send(elsewhere, is_retry=True)

    def _elsewhere(self, flight: Flight) -> tuple[list[Group], Group | None]:
        """The group cut by the replicas that can still answer in time, and what is left for this machine."""
        group = flight.group
        if flight.is_retry or self._layer.candidates.shape[1] == 1:
            return [], group
        costs = self._book.costs(self._layer.replicas, self._policy.kernel_class)
        now = time.monotonic()
        for index in np.flatnonzero(np.isfinite(costs)):
            seconds, _ = self._book.limits(self._layer.replicas[index].session, self._policy)
            if self._layer.replicas[index].session == group.replica.session or now + seconds > self._give_up_at:
                costs[index] = np.inf
        owners = best_owners(self._layer, costs, self._call.expert_ids[group.tokens, group.slots])
        flat, experts = self._flat(group), self._call.expert_ids.ravel()
        groups: list[Group] = []
        local: list[IndexArray] = []
        for owner, part in split_by_owner(owners):
            rest = flat[part]
            if owner >= 0:
                whole = Group(self._layer.replicas[owner], rest // self._slots, rest % self._slots)
                found, rest = self._cut_to_cap(whole, rest, experts)
                if len(found.tokens):
                    groups.append(found)
            local.append(rest)
        left = np.concatenate(local)
        return groups, Group(group.replica, left // self._slots, left % self._slots) if len(left) else None


def owner_of(replica: Replica) -> NodeClass:
    return NodeClass(replica.node_id, replica.kernel_class)
