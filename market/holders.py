"""Who holds an expert now, and who held it before: plain reads for pages."""

from dataclasses import dataclass
from datetime import datetime

from market import queries
from market import rows as r
from market.models import Claim

HISTORY_SHOWN = 30


@dataclass(frozen=True)
class Holding:
    """One claim that covers an expert. state: pending, live, released or expired; end_reason only when it ended."""

    claim_id: int
    node_id: str
    name: str
    first: int
    last: int
    state: str
    granted_at: datetime
    verified_at: datetime | None
    ended_at: datetime | None
    end_reason: str
    rate_microcredits_per_teraflop: int
    earned_microcredits: int

    @property
    def is_open(self) -> bool:
        return self.state in r.OPEN_STATES


def live_ranges(build: str) -> list[tuple[int, int, int, str]]:
    """(layer, first, last, node) of every verified replica of a build."""
    return list(Claim.objects.filter(build=build, state=r.LIVE).values_list("layer", "first", "last", "node_id"))


def holdings(build: str, layer: int, expert: int, limit: int = HISTORY_SHOWN) -> list[Holding]:
    """Claims that cover an expert: open ones first, then the most recent."""
    covering = Claim.objects.filter(build=build, layer=layer, first__lte=expert, last__gt=expert)
    rows = [
        *covering.filter(state__in=r.OPEN_STATES).order_by("-claim_id"),
        *covering.exclude(state__in=r.OPEN_STATES).order_by("-claim_id")[:limit],
    ][:limit]
    names = queries.node_names({row.node_id for row in rows})
    return [
        Holding(
            claim_id=row.claim_id,
            node_id=row.node_id,
            name=names.get(row.node_id, row.node_id),
            first=row.first,
            last=row.last,
            state=row.state,
            granted_at=row.granted_at,
            verified_at=row.verified_at,
            ended_at=row.ended_at,
            end_reason=row.end_reason,
            rate_microcredits_per_teraflop=row.rate_microcredits_per_teraflop,
            earned_microcredits=row.earned_microcredits,
        )
        for row in rows
    ]


def holding_nodes() -> set[str]:
    """Devices with an open claim."""
    return set(Claim.objects.filter(state__in=r.OPEN_STATES).values_list("node_id", flat=True).distinct().order_by())
