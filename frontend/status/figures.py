"""The figures of `/status`, gathered at most every FRESH_SECONDS for all visitors together."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.core.cache import cache
from django.utils import timezone
from django.utils.translation import get_language

from frontend.figures import map_of, shown_builds
from frontend.heat_map import LEGEND, HeatMap
from inference.stats import snapshot
from market.builds import BuildDescription
from market.models import Incident

FRESH_SECONDS = 3
CACHE_KEY = "frontend/status"
INCIDENTS_SHOWN = 20
INCIDENT_DAYS = 90


@dataclass(frozen=True)
class IncidentLine:
    """A time that is held against nobody. reason: as the operator wrote it for everybody; who it was stays inside."""

    starts_at: datetime
    ends_at: datetime
    reason: str
    is_running: bool


@dataclass(frozen=True)
class PublicStatus:
    """stats: those parts of `/api/stats` that are sums over all devices."""

    stats: dict[str, Any]
    maps: tuple[tuple[BuildDescription, HeatMap], ...]
    incidents: tuple[IncidentLine, ...]
    at: datetime
    legend: Sequence[tuple[int, object]] = LEGEND


def public_status() -> PublicStatus:
    """At most FRESH_SECONDS old, in the visitor's language. Raises RedisError, OperationalError."""
    key = f"{CACHE_KEY}/{get_language()}"
    found: PublicStatus | None = cache.get(key)
    if found is None:
        found = collect(timezone.now())
        cache.set(key, found, FRESH_SECONDS)
    return found


def collect(now: datetime) -> PublicStatus:
    stats = snapshot()
    return PublicStatus(
        stats={part: stats[part] for part in ("engine", "experts", "workers", "queue", "row_totals")},
        maps=tuple((build, map_of(build)) for build in shown_builds(stats)),
        incidents=recent_incidents(now),
        at=now,
    )


def recent_incidents(now: datetime) -> tuple[IncidentLine, ...]:
    """Those of the last INCIDENT_DAYS, newest first; announced ones too."""
    rows = Incident.objects.filter(ends_at__gt=now - timedelta(days=INCIDENT_DAYS)).order_by("-starts_at")
    return tuple(
        IncidentLine(row.starts_at, row.ends_at, row.reason, row.starts_at <= now < row.ends_at)
        for row in rows[:INCIDENTS_SHOWN]
    )
