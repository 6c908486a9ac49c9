"""What decisions about claims are made on: one build as one device sees it, and the money that is left. Plain reads."""

from datetime import datetime

import numpy as np
from django.db.models import Sum

from market import queries
from market import rows as r
from market.coverage import held_experts
from market.models import Build, Claim, Layer
from market.placement import BuildMarket


def reserved_microcredits_per_hour() -> int:
    """The sum of all open claims' caps."""
    return Layer.objects.aggregate(total=Sum("reserved_microcredits_per_hour"))["total"] or 0


def earned_by_ended_claims(hour: datetime) -> int:
    """What claims that have ended earned in this clock hour: it was spent of the hour's budget all the same."""
    ended = Claim.objects.filter(hour=hour, ended_at__isnull=False)
    return ended.aggregate(total=Sum("hour_microcredits"))["total"] or 0


def build_market(build: str, node_id: str | None, types: frozenset[str] | None = None) -> BuildMarket:
    """One build as one device sees it; `types`: the ggml types that it can compute, None: all. Raises UnknownBuild."""
    row, layers = queries.build_rows(build)
    description, in_force = queries.description_of(row, layers), queries.policy()
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
        replicas=queries.replicas_of(layers),
        rows_per_hour=queries.demand_of(row, len(layers)),
        held=held_experts(ranges, len(layers), row.experts_per_layer),
        computable=np.array(computable, np.bool_),
        policy=in_force,
        budget_microcredits_per_hour=in_force.budget_microcredits_per_hour // Build.objects.count(),
    )


def remaining_budget(now: datetime) -> int:
    """Microcredits per hour that no open claim has reserved, and no claim that ended in this hour has earned."""
    hour = now.replace(minute=0, second=0, microsecond=0)
    budget = queries.policy().budget_microcredits_per_hour
    return budget - reserved_microcredits_per_hour() - earned_by_ended_claims(hour)
