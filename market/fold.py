"""History to state: one function per event, one exhaustive match. Pure: no clock, no randomness, no I/O, no Django.

A fold owns its State and changes it in place. It trusts nothing: a gap in the positions, an id that nobody introduced
or a fact that contradicts an earlier one raises BrokenHistory. `market.projections` writes the same facts to the
tables, one event at a time; `manage.py replay --check` compares the two, row by row.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import assert_never

import numpy as np

from market import events as e
from market import rows as r
from market.demand import unpack_counts, updated_mean
from market.errors import BrokenHistory
from market.hours import first_hour_allowance, hour_of
from market.ledger import held_until
from market.ledger_fold import apply_earnings, apply_payout, hold, post
from market.state import State as State


def fold(history: Iterable[e.Recorded], state: State | None = None) -> State:
    """Applies every event in order; raises BrokenHistory."""
    state = State() if state is None else state
    for recorded in history:
        apply(state, recorded)
    return state


def apply(state: State, recorded: e.Recorded) -> None:
    """Applies one event at the next position and the next version of its stream; raises BrokenHistory."""
    if recorded.position != state.position + 1:
        raise BrokenHistory(f"position {recorded.position} follows {state.position}")
    version = state.versions.get(recorded.stream, 0)
    if recorded.version != version + 1 or recorded.stream != e.stream_of(recorded.event):
        raise BrokenHistory(f"position {recorded.position} is no successor in stream {recorded.stream}")
    state.position = recorded.position
    state.versions[recorded.stream] = recorded.version
    _dispatch(state, recorded)


def _dispatch(state: State, recorded: e.Recorded) -> None:
    event = recorded.event
    match event:
        case e.BuildPublished():
            apply_build_published(state, event)
        case e.BuildRetired():
            state.build(event.fingerprint).retired_at = event.at
        case e.BuildRestored():
            state.build(event.fingerprint).retired_at = None
        case e.ClaimGranted():
            apply_claim_granted(state, event, recorded.version)
        case e.ClaimReleased():
            end_claim(state, event.claim_id, r.RELEASED, event.reason, event.at)
        case e.ClaimExpired():
            end_claim(state, event.claim_id, r.EXPIRED, "lease_expired", event.at)
        case e.SliceDelivered():
            state.claim(event.claim_id).sha256 = event.sha256
        case e.ReplicaVerified():
            apply_replica_verified(state, event)
        case e.ReplicaLost():
            apply_replica_lost(state, event)
        case e.DemandObserved():
            apply_demand_observed(state, event)
        case e.WorkCredited():
            apply_work_credited(state, event)
        case e.PolicyChanged():
            apply_policy_changed(state, event)
        case e.IncidentDeclared():
            apply_incident_declared(state, event)
        case e.EarningsReleased() | e.EarningsForfeited() | e.EarningsRestored() | e.BalanceAdjusted():
            apply_earnings(state, event)
        case (
            e.PayoutDrafted()
            | e.PayoutApproved()
            | e.PayoutCancelled()
            | e.PayoutSending()
            | e.PayoutSent()
            | e.PayoutItemSettled()
            | e.PayoutItemFailed()
            | e.PayoutItemReturned()
        ):
            apply_payout(state, event)
        case _:
            apply_node(state, event)


def apply_node(state: State, event: e.NodeFact) -> None:
    """One fact about a device; only the first one may name a device that nobody knows."""
    if isinstance(event, e.NodeRegistered):
        apply_node_registered(state, event)
        return
    node = state.node(event.node_id)
    match event:
        case e.NodeTokenRotated():
            node.token_sha256 = event.token_sha256
        case e.NodeTokenRevoked():
            node.token_sha256 = r.no_token(event.node_id)
        case e.NodeSuspended():
            node.suspended_reason = event.reason
        case e.NodeQuarantined():
            node.suspended_reason, node.quarantined, node.trust = event.reason, True, 0
        case e.NodeReinstated():
            node.suspended_reason, node.quarantined = "", False
        case e.NodeAudited():
            audited = event.kernel_class or node.kernel_class
            goes_on = audited == node.trusted_class and not event.failures
            node.trust, node.trusted_class = event.passes + (node.trust if goes_on else 0), audited
        case e.NodeLinked():
            # Trust was earned by the account that had the device; one that never had any keeps what it earned alone.
            node.trust = 0 if node.owner_id else node.trust
            node.owner_id = event.owner_id
        case e.NodeLeaving():
            node.leaves_at = event.leaves_at
        case e.NodeStayed():
            node.leaves_at = None
        case e.NodeMessaged():
            pass  # words to a person: no table holds them
        case e.NodeErased():
            node.token_sha256, node.owner_id, node.erased_at = r.no_token(event.node_id), "", event.at
        case _ as never:
            assert_never(never)


def apply_build_published(state: State, event: e.BuildPublished) -> None:
    build = event.build
    if build.fingerprint in state.builds:
        raise BrokenHistory(f"build {build.fingerprint} was published twice")
    state.builds[build.fingerprint] = r.BuildRow(
        fingerprint=build.fingerprint,
        name=build.name,
        architecture=build.architecture,
        n_embd=build.n_embd,
        n_ff=build.n_ff,
        experts_per_layer=build.experts_per_layer,
        experts_used=build.experts_used,
        kind=build.kind,
        published_at=event.at,
        retired_at=None,
    )
    for ordinal, layer in enumerate(build.layers):
        state.layers[build.fingerprint, layer] = r.LayerRow(
            build=build.fingerprint,
            layer=layer,
            ordinal=ordinal,
            expert_bytes=build.expert_bytes[ordinal],
            expert_types=",".join(build.expert_types[ordinal]),
            replicas=np.zeros(build.experts_per_layer, np.uint16),
            reserved_microcredits_per_hour=0,
        )


def apply_node_registered(state: State, event: e.NodeRegistered) -> None:
    if event.node_id in state.nodes:
        raise BrokenHistory(f"node {event.node_id} registered twice")
    state.nodes[event.node_id] = r.NodeRow(
        node_id=event.node_id,
        role=event.role,
        kernel_class=event.kernel_class,
        budget_bytes=event.budget_bytes,
        token_sha256=event.token_sha256,
        suspended_reason="",
        quarantined=False,
        trust=0,
        trusted_class=event.kernel_class,
        owner_id="",
        leaves_at=None,
        erased_at=None,
        registered_at=event.at,
    )


def apply_claim_granted(state: State, event: e.ClaimGranted, version: int) -> None:
    state.node(event.node_id)
    layer = state.layers.get((event.build, event.layer))
    if layer is None or not 0 <= event.first < event.last <= len(layer.replicas):
        raise BrokenHistory(f"claim {event.claim_id} lies outside build {event.build}")
    if event.claim_id in state.claims or event.fence != version:
        raise BrokenHistory(f"claim {event.claim_id} was granted twice or carries fence {event.fence}, not {version}")
    layer.replicas[event.first : event.last] += 1
    layer.reserved_microcredits_per_hour += event.cap_microcredits_per_hour
    state.claims[event.claim_id] = granted_claim(event)


def granted_claim(event: e.ClaimGranted) -> r.ClaimRow:
    """The claim as it is the moment it is granted; the projection starts from the same row."""
    return r.ClaimRow(
        claim_id=event.claim_id,
        node_id=event.node_id,
        build=event.build,
        layer=event.layer,
        first=event.first,
        last=event.last,
        fence=event.fence,
        state=r.PENDING,
        size_bytes=event.size_bytes,
        rate_microcredits_per_teraflop=event.rate_microcredits_per_teraflop,
        cap_microcredits_per_hour=event.cap_microcredits_per_hour,
        first_hour_microcredits=first_hour_allowance(event.cap_microcredits_per_hour, event.at),
        sha256="",
        granted_at=event.at,
        verified_at=None,
        ended_at=None,
        end_reason="",
        earned_microcredits=0,
        hour=None,
        hour_microcredits=0,
    )


def end_claim(state: State, claim_id: int, ended_as: str, reason: str, at: datetime) -> None:
    claim = state.claim(claim_id)
    layer = state.layers[claim.build, claim.layer]
    layer.replicas[claim.first : claim.last] -= 1
    layer.reserved_microcredits_per_hour -= claim.cap_microcredits_per_hour
    claim.state, claim.end_reason, claim.ended_at = ended_as, reason, at


def apply_replica_verified(state: State, event: e.ReplicaVerified) -> None:
    claim = state.claim(event.claim_id)
    claim.state, claim.sha256, claim.verified_at = r.LIVE, event.sha256, event.at


def apply_replica_lost(state: State, event: e.ReplicaLost) -> None:
    claim = state.claim(event.claim_id)
    claim.state, claim.verified_at = r.PENDING, None


def apply_demand_observed(state: State, event: e.DemandObserved) -> None:
    if event.build not in state.builds:
        raise BrokenHistory(f"demand of build {event.build}, which was never published")
    counts = unpack_counts(event.counts, event.scale, event.layers, event.experts)
    earlier = state.demand.get(event.build)
    mean = None if earlier is None else earlier.rows_per_hour
    until = event.window_start if earlier is None else earlier.observed_until
    seconds = (event.window_end - event.window_start).total_seconds()
    mean = updated_mean(mean, counts, seconds, (event.window_end - until).total_seconds())
    state.demand[event.build] = r.DemandRow(event.build, mean, max(until, event.window_end))


def apply_work_credited(state: State, event: e.WorkCredited) -> None:
    state.node(event.node_id)
    post(state, event.postings)
    amount = sum(work.amount_microcredits for work in event.work)
    if amount:
        hold(state, event.node_id, held_until(event.at), held_microcredits=amount)
    for work in event.work:
        key = (event.build, event.node_id, work.layer)
        total = state.credited.setdefault(key, r.CreditedRowsRow(*key, rows=0, amount_microcredits=0))
        total.rows += work.rows
        total.amount_microcredits += work.amount_microcredits
        if work.claim_id is not None:
            _earn(state, work.claim_id, work.amount_microcredits, hour_of(event.window_end))


def _earn(state: State, claim_id: int, amount_microcredits: int, hour: datetime) -> None:
    claim = state.claims.get(claim_id)
    if claim is None:
        raise BrokenHistory(f"position {state.position}: work of claim {claim_id}, which was never granted")
    claim.earned_microcredits += amount_microcredits
    claim.hour_microcredits = amount_microcredits + (claim.hour_microcredits if claim.hour == hour else 0)
    claim.hour = hour


def apply_incident_declared(state: State, event: e.IncidentDeclared) -> None:
    if event.incident_id in state.incidents:
        raise BrokenHistory(f"incident {event.incident_id} was declared twice")
    state.incidents[event.incident_id] = r.IncidentRow(
        incident_id=event.incident_id,
        starts_at=event.starts_at,
        ends_at=event.ends_at,
        by=event.by,
        reason=event.reason,
        declared_at=event.at,
    )


def apply_policy_changed(state: State, event: e.PolicyChanged) -> None:
    state.policy = r.PolicyRow(
        number=1,
        budget_microcredits_per_hour=event.budget_microcredits_per_hour,
        price_ceiling_microcredits_per_teraflop=event.price_ceiling_microcredits_per_teraflop,
        target_replicas=event.target_replicas,
        maximum_replicas=event.maximum_replicas,
        target_bytes_percent=event.target_bytes_percent,
        standby_percent=event.standby_percent,
        changed_at=event.at,
    )
