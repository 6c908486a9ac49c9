"""The HTTP API of the nodes, at /api/: thin operations over commands and queries. OpenAPI at /api/openapi.json."""

import random
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any

from django.conf import settings
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import NinjaAPI, Status
from ninja.security import HttpBearer
from pydantic import Field

from market import (
    api_errors,
    commands,
    enrolment,
    histories,
    limits,
    offers,
    presence,
    queries,
    snapshots,
    statements,
)
from market import api_schemas as shapes
from market.errors import BadToken, MarketError
from market.ledger import NODE_ACCOUNTS
from market.placement import presets
from market.statements import statement_csv

POLL_SECONDS = (30.0, 60.0)
ERRORS: dict[frozenset[int], Any] = {frozenset({400, 401, 403, 404, 409, 410, 413, 422, 429, 503}): shapes.ErrorOut}


TypeNames = Annotated[str | None, Field(max_length=1000, description="ggml types, separated by commas.")]


class DeviceToken(HttpBearer):
    """The token that POST /api/nodes gave to the device."""

    def authenticate(self, request: HttpRequest, token: str) -> queries.NodeView:
        node = queries.authenticate(token)
        if node is None:
            raise BadToken("nobody has this token; register with POST /api/nodes")
        limits.count_device_request(node.node_id)
        return node


api = NinjaAPI(
    title="Expertswarm node API",
    version="1",
    description=(
        "How a device enrols, sees what is wanted, claims experts, says that it holds them and reads its earnings. "
        "Every error is `{error: {code, message}}`."
    ),
    urls_namespace="market-api",
    parser=api_errors.BoundedParser(),
)
api_errors.install(api)
_device = DeviceToken()


def _node(request: HttpRequest) -> queries.NodeView:
    """The authenticated device of a request."""
    node: queries.NodeView = request.auth  # type: ignore[attr-defined]
    return node


@api.post("/nodes", response={201: shapes.NodeOut, **ERRORS}, auth=None, summary="Enrol a device")
def register(request: HttpRequest, wish: shapes.NodeIn) -> Status[dict[str, Any]]:
    limits.count_registration(request.META.get("REMOTE_ADDR", ""))
    with transaction.atomic():
        enrolment.admit(wish.invite)
        node_id, token = commands.register_node(wish.name, wish.kernel_class, wish.budget_bytes, role=wish.role)
    return Status(201, {"node_id": node_id, "token": token})


@api.get("/demand", response={200: shapes.DemandOut, **ERRORS}, auth=_device, summary="What is wanted and what it pays")
def demand(
    request: HttpRequest,
    budget_bytes: shapes.Bytes | None = None,
    build: shapes.Fingerprint | None = None,
    types: TypeNames = None,
) -> dict[str, Any]:
    found = offers.offers_for(_node(request), budget_bytes, build, _types(types.split(",") if types else None))
    return {
        "builds": [_build_out(on_offer) for on_offer in found.builds],
        "ranges": [_range_out(offer) for offer in found.offers],
        "poll_seconds": round(random.uniform(*POLL_SECONDS), 1),
        "reason": found.reason.code if found.reason else None,
        "message": str(found.reason) if found.reason else None,
    }


def _types(names: Iterable[str] | None) -> frozenset[str] | None:
    return None if names is None else frozenset(name.strip() for name in names)


def _build_out(on_offer: offers.BuildOnOffer) -> dict[str, Any]:
    build = on_offer.build
    return {
        "fingerprint": build.fingerprint,
        "kind": build.kind,
        "name": build.name,
        "architecture": build.architecture,
        "n_embd": build.n_embd,
        "n_ff": build.n_ff,
        "experts_per_layer": build.experts_per_layer,
        "experts_used": build.experts_used,
        "layers": list(build.layers),
        "types": sorted({name for names in build.expert_types for name in names}),
        "experts": on_offer.coverage.experts,
        "experts_covered": on_offer.coverage.covered,
        "presets": [{"experts": experts, "size_bytes": size} for experts, size in presets(build)],
    }


def _range_out(offer: offers.Offer) -> dict[str, Any]:
    run = offer.run
    return {
        "build": offer.build,
        "layer": run.layer,
        "first": run.first,
        "last": run.last,
        "size_bytes": run.size_bytes,
        "replicas": run.replicas,
        "rate_microcredits_per_hour": offer.rate_microcredits_per_hour,
        "rate_microcredits_per_teraflop": run.rate_microcredits_per_teraflop,
        "microcredits_per_hour_per_megabyte": round(offer.microcredits_per_hour_per_megabyte, 3),
    }


@api.post("/claims", response={201: shapes.ClaimsOut, **ERRORS}, auth=_device, summary="Claim ranges, or the best ones")
def claim(request: HttpRequest, wish: shapes.ClaimIn) -> Status[dict[str, Any]]:
    node_id = _node(request).node_id
    presence.mark_seen(node_id, timezone.now())
    if wish.best_for_budget_bytes is not None:
        granted = commands.claim_best(node_id, wish.best_for_budget_bytes, wish.build, types=_types(wish.types))
    else:
        ranges = [commands.RangeWish(part.layer, part.first, part.last) for part in wish.ranges or []]
        granted = commands.claim_ranges(node_id, ranges, wish.build)
    return Status(201, {"claims": [_claim_out(view) for view in granted]})


def _claim_out(view: queries.ClaimView) -> dict[str, Any]:
    slice_url = f"/api/slices/{view.build}/{view.layer}/{view.first}-{view.last}"
    return {
        "claim_id": view.claim_id,
        "build": view.build,
        "layer": view.layer,
        "first": view.first,
        "last": view.last,
        "fence": view.fence,
        "state": view.state,
        "sha256": view.sha256,
        "expires_at": view.expires_at,
        "size_bytes": view.size_bytes,
        "rate_microcredits_per_hour": view.cap_microcredits_per_hour,
        "rate_microcredits_per_teraflop": view.rate_microcredits_per_teraflop,
        "earned_microcredits": view.earned_microcredits,
        "cap_reached": view.cap_reached,
        "slice_url": slice_url,
        "manifest_url": f"{slice_url}/manifest",
    }


def _replicas(claim: dict[str, Any]) -> int:
    return snapshots.least_present(claim["build"], claim["layer"], claim["first"], claim["last"])


ClaimId = Annotated[int, Field(ge=0, le=2**63 - 1)]


@api.delete("/claims/{claim_id}", response={200: shapes.ReleasedOut, **ERRORS}, auth=_device, summary="End a claim")
def release(request: HttpRequest, claim_id: ClaimId) -> dict[str, Any]:
    commands.release_claim(_node(request).node_id, claim_id)
    return {"released": claim_id}


@api.post(
    "/claims/{claim_id}/delivered",
    response={200: shapes.ClaimsOut, **ERRORS},
    auth=_device,
    summary="Say that a slice is held",
)
def delivered(request: HttpRequest, claim_id: ClaimId, wish: shapes.DeliveredIn) -> dict[str, Any]:
    node_id = _node(request).node_id
    presence.mark_seen(node_id, timezone.now())
    commands.record_delivery(node_id, claim_id, wish.fence, wish.sha256)
    return {"claims": [_claim_out(view) for view in queries.node_claims(node_id) if view.claim_id == claim_id]}


@api.post("/heartbeat", response={200: shapes.HeartbeatOut, **ERRORS}, auth=_device, summary="Renew all leases")
def heartbeat(request: HttpRequest) -> dict[str, Any]:
    node_id = _node(request).node_id
    presence.mark_seen(node_id, timezone.now())
    claims = [_claim_out(view) for view in queries.node_claims(node_id)]
    if _node(request).role == "stage":
        claims = [claim | {"replicas": _replicas(claim)} for claim in claims]
    return {"claims": claims, "lease_seconds": settings.LEASE_SECONDS}


@api.get("/me", response={200: shapes.MeOut, **ERRORS}, auth=_device, summary="Claims, earnings, reasons")
def me(request: HttpRequest) -> dict[str, Any]:
    node = _node(request)
    claims = queries.node_claims(node.node_id)
    reason = "leaving" if node.leaves_at is not None and not claims else offers.idle_reason(node, claims)
    return {
        "node_id": node.node_id,
        "name": node.name,
        "role": node.role,
        "kernel_class": node.kernel_class,
        "suspended": node.suspended,
        "claims": [_claim_out(view) for view in claims],
        "trust": node.trust,
        "leaves_at": node.leaves_at,
        "has_payee": queries.has_payee(node.owner_id),
        "balance_microcredits": {**dict.fromkeys(NODE_ACCOUNTS, 0), **queries.balances(node.node_id)},
        "reason": reason.code if isinstance(reason, MarketError) else reason,
        "message": str(reason) if isinstance(reason, MarketError) else _IDLE_MESSAGES.get(reason or ""),
        "messages": [{"at": one.at, "text": one.text} for one in histories.messages(node.node_id)],
        "lease_seconds": settings.LEASE_SECONDS,
    }


@api.get(
    "/me/statement.csv",
    response={(400, 401, 403, 422, 503): shapes.ErrorOut},
    auth=_device,
    summary="Every movement of the device's money, as CSV",
    openapi_extra={"responses": {200: {"description": "OK", "content": {"text/csv": {"schema": {"type": "string"}}}}}},
)
def statement(request: HttpRequest, since: datetime | None = None, until: datetime | None = None) -> HttpResponse:
    node_id = _node(request).node_id
    text = statement_csv(statements.statement(node_id, since, until))
    answer = HttpResponse(text, content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="statement-{node_id}.csv"'
    return answer


@api.put("/me/payee", response={200: shapes.PayeeOut, **ERRORS}, auth=_device, summary="Where the earnings go")
def payee(request: HttpRequest, wish: shapes.PayeeIn) -> dict[str, Any]:
    commands.set_node_payee(_node(request).node_id, wish.payee)
    return {"has_payee": bool(wish.payee.strip())}


@api.put(
    "/me/leave", response={200: shapes.LeaveOut, **ERRORS}, auth=_device, summary="Announce a leave, or take it back"
)
def leave(request: HttpRequest, wish: shapes.LeaveIn) -> dict[str, Any]:
    node_id = _node(request).node_id
    if wish.leaves_at is None:
        commands.cancel_leave(node_id)
    else:
        commands.plan_leave(node_id, wish.leaves_at, reason=wish.reason)
    return {"leaves_at": wish.leaves_at}


@api.post("/me/token", response={200: shapes.NodeOut, **ERRORS}, auth=_device, summary="A new token for the old one")
def rotate(request: HttpRequest) -> dict[str, Any]:
    node_id = _node(request).node_id
    return {"node_id": node_id, "token": commands.rotate_token(node_id)}


_IDLE_MESSAGES = {
    "leaving": "this device has announced that it leaves; take that back with PUT /api/me/leave to claim again",
    "not_claimed": "there is work: claim ranges with POST /api/claims",
    "not_verified": "the slices are not verified yet: download them, say so, and stay connected to the relay",
    "cap_reached": "this hour's cap of every claim is earned; work goes on in the next hour",
}

urls = api_errors.shaped_urls(api)
