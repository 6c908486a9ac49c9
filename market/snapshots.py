"""What decisions about claims are made on: one build as one device sees it, and the money that is left. Plain reads."""

from datetime import datetime
from typing import cast

import numpy as np
from django.db import connection
from django.db.models import Sum

from market import presence, projections, queries, strain
from market import rows as r
from market.builds import BuildDescription, flops_per_row
from market.claim_rules import Purse
from market.coverage import Replicas, count_replicas, held_experts
from market.hours import start_of_hour
from market.kinds import BuildKind
from market.models import Build, Claim, Demand, Layer
from market.placement import BuildMarket
from market.policy import Policy
from market.pricing import build_budgets, priced_budget

# One round trip under the append lock. Open caps; the part of them that this clock hour began too early for; what ended
# claims have earned in it, which was spent of the hour's budget all the same.
_SUMS = """
SELECT (SELECT COALESCE(SUM(reserved_microcredits_per_hour), 0) FROM market_layer),
       (SELECT COALESCE(SUM(cap_microcredits_per_hour - first_hour_microcredits), 0) FROM market_claim
         WHERE granted_at >= %s AND ended_at IS NULL),
       (SELECT COALESCE(SUM(hour_microcredits), 0) FROM market_claim WHERE hour = %s AND ended_at IS NOT NULL)
"""


def reserved_microcredits_per_hour() -> int:
    """The sum of all open claims' caps."""
    return Layer.objects.aggregate(total=Sum("reserved_microcredits_per_hour"))["total"] or 0


def build_market(
    build: str, node_id: str | None, types: frozenset[str] | None = None, policy: Policy | None = None
) -> BuildMarket:
    """One build as one device sees it. Raises UnknownBuild.

    types: the ggml types that the device can compute, None: all. policy: the one in force, if it was read already.
    """
    row = queries.build_row(build)
    description, in_force = queries.described(row), policy or queries.policy()
    shape = (len(description.layers), row.experts_per_layer)
    stored = Layer.objects.filter(build=build).order_by("ordinal").values_list("replicas", flat=True)
    own = (
        Claim.objects.filter(node_id=node_id, build=build, state__in=r.OPEN_STATES) if node_id else Claim.objects.none()
    )
    ranges = [
        (description.row_of(layer) or 0, first, last)
        for layer, first, last in own.values_list("layer", "first", "last")
    ]
    computable = [types is None or set(names) <= types for names in description.expert_types]
    return BuildMarket(
        build=description,
        replicas=np.stack([projections.replicas_from_bytes(replicas) for replicas in stored]),
        rows_per_hour=queries.demand_of(row, shape[0]),
        held=held_experts(ranges, *shape),
        computable=np.array(computable, np.bool_),
        policy=in_force,
        budget_microcredits_per_hour=_build_budget(build, in_force),
        silent=_silent_replicas(description),
        strain=strain.of(build, shape),
    )


def least_present(build: str, layer: int, first: int, last: int) -> int:
    """Present replicas of the least held expert, or unit, of a range. Raises UnknownBuild."""
    market = build_market(build, None)
    return int(market.present[market.build.row_of(layer) or 0, first:last].min())


def _build_budget(build: str, policy: Policy) -> int:
    """This build's part of the operator's budget; nothing for a build that was retired."""
    budget = priced_budget(policy.budget_microcredits_per_hour)
    builds = list(queries.on_offer().order_by("fingerprint"))
    names = [row.fingerprint for row in builds]
    if build not in names:
        return 0
    if len(builds) == 1:
        return budget
    operations = [_operations_per_hour(row) for row in builds]
    kinds = [cast(BuildKind, row.kind) for row in builds]
    return build_budgets(operations, kinds, budget)[names.index(build)]


def _operations_per_hour(row: Build) -> float:
    stored = Demand.objects.filter(build=row.fingerprint).first()
    rows = 0.0 if stored is None else float(np.frombuffer(bytes(stored.rows_per_hour), "<f8").sum())
    return rows * flops_per_row(row.n_embd, row.n_ff)


def _silent_replicas(build: BuildDescription) -> Replicas | None:
    """Replicas of devices that are silent: (layers, experts); None where there are none."""
    silent = presence.silent_nodes()
    claims = Claim.objects.filter(build=build.fingerprint, state__in=r.OPEN_STATES, node_id__in=silent)
    ranges = [
        (build.row_of(layer) or 0, first, last) for layer, first, last in claims.values_list("layer", "first", "last")
    ]
    return count_replicas(ranges, len(build.layers), build.experts_per_layer) if ranges else None


def purse(now: datetime, policy: Policy | None = None) -> Purse:
    """The money that claims of this moment may be granted from; `policy`: the one in force, if it was read already."""
    in_force = policy or queries.policy()
    hour = connection.ops.adapt_datetimefield_value(start_of_hour(now))
    with connection.cursor() as cursor:
        cursor.execute(_SUMS, [hour, hour])
        reserved, unreachable, ended = (int(total) for total in cursor.fetchone())
    return Purse(in_force.budget_microcredits_per_hour, reserved, reserved - unreachable + ended, now)


def remaining_budget(now: datetime) -> int:
    """The greatest cap that a claim may be granted at this moment."""
    return purse(now).remaining()
