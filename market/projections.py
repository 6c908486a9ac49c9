"""Each event into the read models, in the transaction that appends it. The fold says the same without a database."""

from datetime import datetime
from typing import Any, assert_never

import numpy as np
from django.db.models import Case, F, Value, When
from numpy.typing import NDArray

from market import events as e
from market import rows as r
from market.demand import unpack_counts, updated_mean
from market.errors import BrokenHistory
from market.fold import granted_claim
from market.hours import hour_of
from market.ledger import held_until
from market.ledger_models import Incident
from market.ledger_projections import hold, post, project_earnings, project_payout
from market.models import Build, Claim, CreditedRows, CurrentPolicy, Demand, Layer, Node


def replicas_to_bytes(replicas: NDArray[np.uint16]) -> bytes:
    return replicas.astype("<u2").tobytes()


def replicas_from_bytes(raw: bytes | memoryview) -> NDArray[np.uint16]:
    """A copy that may be written to: (experts,) uint16."""
    return np.frombuffer(bytes(raw), "<u2").astype(np.uint16)


def demand_to_bytes(rows_per_hour: NDArray[np.float64]) -> bytes:
    return rows_per_hour.astype("<f8").tobytes()


def demand_from_bytes(raw: bytes | memoryview, layers: int, experts: int) -> NDArray[np.float64]:
    return np.frombuffer(bytes(raw), "<f8").astype(np.float64).reshape(layers, experts)


def project(recorded: e.Recorded) -> None:
    """Writes one event into the tables. Raises BrokenHistory where the event contradicts them."""
    event = recorded.event
    match event:
        case e.BuildPublished():
            project_build_published(event)
        case e.BuildRetired():
            _update_build(event.fingerprint, retired_at=event.at)
        case e.BuildRestored():
            _update_build(event.fingerprint, retired_at=None)
        case e.ClaimGranted():
            project_claim_granted(event)
        case e.ClaimReleased():
            _end_claim(event.claim_id, r.RELEASED, event.reason, event.at)
        case e.ClaimExpired():
            _end_claim(event.claim_id, r.EXPIRED, "lease_expired", event.at)
        case e.SliceDelivered():
            _update_claim(event.claim_id, sha256=event.sha256)
        case e.ReplicaVerified():
            _update_claim(event.claim_id, state=r.LIVE, sha256=event.sha256, verified_at=event.at)
        case e.ReplicaLost():
            _update_claim(event.claim_id, state=r.PENDING, verified_at=None)
        case e.DemandObserved():
            project_demand_observed(event)
        case e.WorkCredited():
            project_work_credited(event, recorded.position)
        case e.PolicyChanged():
            project_policy_changed(event)
        case e.IncidentDeclared():
            project_incident_declared(event)
        case e.EarningsReleased() | e.EarningsForfeited() | e.EarningsRestored() | e.BalanceAdjusted():
            project_earnings(event, recorded.position)
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
            project_payout(event, recorded.position)
        case _:
            project_node(event)


def project_node(event: e.NodeFact) -> None:
    match event:
        case e.NodeRegistered():
            project_node_registered(event)
        case e.NodeTokenRotated():
            _update_node(event.node_id, token_sha256=event.token_sha256)
        case e.NodeTokenRevoked():
            _update_node(event.node_id, token_sha256=r.no_token(event.node_id))
        case e.NodeSuspended():
            _update_node(event.node_id, suspended_reason=event.reason)
        case e.NodeQuarantined():
            _update_node(event.node_id, suspended_reason=event.reason, quarantined=True, trust=0)
        case e.NodeReinstated():
            _update_node(event.node_id, suspended_reason="", quarantined=False)
        case e.NodeAudited():
            project_node_audited(event)
        case e.NodeLinked():
            trust = Case(When(owner_id="", then=F("trust")), default=Value(0))
            _update_node(event.node_id, owner_id=event.owner_id, trust=trust)
        case e.NodeLeaving():
            _update_node(event.node_id, leaves_at=event.leaves_at)
        case e.NodeStayed():
            _update_node(event.node_id, leaves_at=None)
        case e.NodeMessaged():
            pass  # words to a person: no table holds them
        case e.NodeErased():
            _update_node(event.node_id, token_sha256=r.no_token(event.node_id), owner_id="", erased_at=event.at)
        case _ as never:
            assert_never(never)


def project_build_published(event: e.BuildPublished) -> None:
    build = event.build
    Build.objects.create(
        fingerprint=build.fingerprint,
        name=build.name,
        architecture=build.architecture,
        n_embd=build.n_embd,
        n_ff=build.n_ff,
        experts_per_layer=build.experts_per_layer,
        experts_used=build.experts_used,
        kind=build.kind,
        published_at=event.at,
    )
    Layer.objects.bulk_create(
        Layer(
            build=build.fingerprint,
            layer=layer,
            ordinal=ordinal,
            expert_bytes=build.expert_bytes[ordinal],
            expert_types=",".join(build.expert_types[ordinal]),
            replicas=replicas_to_bytes(np.zeros(build.experts_per_layer, np.uint16)),
        )
        for ordinal, layer in enumerate(build.layers)
    )


def _update_build(fingerprint: str, *, retired_at: datetime | None) -> None:
    if not Build.objects.filter(fingerprint=fingerprint).update(retired_at=retired_at):
        raise BrokenHistory(f"build {fingerprint} was never published")


def project_node_registered(event: e.NodeRegistered) -> None:
    Node.objects.create(
        node_id=event.node_id,
        role=event.role,
        kernel_class=event.kernel_class,
        budget_bytes=event.budget_bytes,
        token_sha256=event.token_sha256,
        suspended_reason="",
        trusted_class=event.kernel_class,
        registered_at=event.at,
    )


def project_node_audited(event: e.NodeAudited) -> None:
    audited = Value(event.kernel_class) if event.kernel_class else F("kernel_class")
    sum_of_passes: Any = Value(event.passes)
    if not event.failures:
        sum_of_passes = Case(When(trusted_class=audited, then=F("trust") + event.passes), default=event.passes)
    _update_node(event.node_id, trust=sum_of_passes, trusted_class=audited)


def _update_node(node_id: str, **changes: Any) -> None:
    if not Node.objects.filter(node_id=node_id).update(**changes):
        raise BrokenHistory(f"node {node_id} never registered")


def project_claim_granted(event: e.ClaimGranted) -> None:
    row = granted_claim(event)
    Claim.objects.create(**{name: getattr(row, name) for name in r.ClaimRow.__slots__})
    _change_replicas(row.build, row.layer, row.first, row.last, 1, row.cap_microcredits_per_hour)


def _change_replicas(build: str, layer: int, first: int, last: int, step: int, cap_microcredits: int) -> None:
    rows = Layer.objects.filter(build=build, layer=layer)
    replicas = replicas_from_bytes(rows.values_list("replicas", flat=True).get()).astype(np.int32)
    replicas[first:last] += step
    if replicas.min() < 0:
        raise BrokenHistory(f"build {build}, layer {layer}: fewer than no replicas")
    rows.update(
        replicas=replicas_to_bytes(replicas.astype(np.uint16)),
        reserved_microcredits_per_hour=F("reserved_microcredits_per_hour") + step * cap_microcredits,
    )


def _update_claim(claim_id: int, **changes: str | datetime | None) -> None:
    if not Claim.objects.filter(claim_id=claim_id, state__in=r.OPEN_STATES).update(**changes):
        raise BrokenHistory(f"claim {claim_id} is unknown or has ended")


def _end_claim(claim_id: int, state: str, reason: str, at: datetime) -> None:
    _update_claim(claim_id, state=state, end_reason=reason, ended_at=at)
    claim = Claim.objects.get(claim_id=claim_id)
    _change_replicas(claim.build, claim.layer, claim.first, claim.last, -1, claim.cap_microcredits_per_hour)


def project_demand_observed(event: e.DemandObserved) -> None:
    counts = unpack_counts(event.counts, event.scale, event.layers, event.experts)
    earlier = Demand.objects.filter(build=event.build).first()
    mean = None if earlier is None else demand_from_bytes(earlier.rows_per_hour, event.layers, event.experts)
    until = event.window_start if earlier is None else earlier.observed_until
    seconds = (event.window_end - event.window_start).total_seconds()
    mean = updated_mean(mean, counts, seconds, (event.window_end - until).total_seconds())
    Demand.objects.update_or_create(
        build=event.build,
        defaults={"rows_per_hour": demand_to_bytes(mean), "observed_until": max(until, event.window_end)},
    )


def project_work_credited(event: e.WorkCredited, position: int) -> None:
    post(position, event.postings)
    amount = sum(work.amount_microcredits for work in event.work)
    if amount:
        hold(event.node_id, held_until(event.at), held=amount)
    for work in event.work:
        _add_credited_rows(event, work)
        if work.claim_id is not None:
            _earn(work.claim_id, work.amount_microcredits, hour_of(event.window_end))


def _add_credited_rows(event: e.WorkCredited, work: e.WorkLine) -> None:
    changed = CreditedRows.objects.filter(build=event.build, node_id=event.node_id, layer=work.layer).update(
        rows=F("rows") + work.rows, amount_microcredits=F("amount_microcredits") + work.amount_microcredits
    )
    if not changed:
        CreditedRows.objects.create(
            build=event.build,
            node_id=event.node_id,
            layer=work.layer,
            rows=work.rows,
            amount_microcredits=work.amount_microcredits,
        )


def _earn(claim_id: int, amount_microcredits: int, hour: datetime) -> None:
    claim = Claim.objects.get(claim_id=claim_id)
    claim.earned_microcredits += amount_microcredits
    claim.hour_microcredits = amount_microcredits + (claim.hour_microcredits if claim.hour == hour else 0)
    claim.hour = hour
    claim.save(update_fields=["earned_microcredits", "hour_microcredits", "hour"])


def project_incident_declared(event: e.IncidentDeclared) -> None:
    Incident.objects.create(
        incident_id=event.incident_id,
        starts_at=event.starts_at,
        ends_at=event.ends_at,
        by=event.by,
        reason=event.reason,
        declared_at=event.at,
    )


def project_policy_changed(event: e.PolicyChanged) -> None:
    CurrentPolicy.objects.update_or_create(
        number=1,
        defaults={
            "budget_microcredits_per_hour": event.budget_microcredits_per_hour,
            "price_ceiling_microcredits_per_teraflop": event.price_ceiling_microcredits_per_teraflop,
            "target_replicas": event.target_replicas,
            "maximum_replicas": event.maximum_replicas,
            "target_bytes_percent": event.target_bytes_percent,
            "standby_percent": event.standby_percent,
            "changed_at": event.at,
        },
    )
