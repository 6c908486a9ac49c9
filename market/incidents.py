"""Times that are held against nobody, as others ask for them: reads of the incidents that were declared."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from market.models import Incident

Span = tuple[datetime, datetime]


def incident_at(moment: datetime) -> Incident | None:
    """The incident that lasts at this moment, the longest one."""
    return Incident.objects.filter(starts_at__lte=moment, ends_at__gt=moment).order_by("-ends_at").first()


def incident_spans(after: datetime) -> list[Span]:
    """(start, end) of every incident that ends after this moment, in order of their starts.

    One that ended a whole lease ago changes nothing: everybody has had a lease since to be seen.
    """
    return list(Incident.objects.filter(ends_at__gt=after).order_by("starts_at").values_list("starts_at", "ends_at"))


def extended(since: datetime, lasts: timedelta, spans: Sequence[Span]) -> datetime:
    """When a time of this length that began at `since` is over, if the clock stands still during the spans.

    spans: in order of their starts; they may overlap.
    """
    end = since + lasts
    counted = since
    for starts_at, ends_at in spans:
        start = max(starts_at, counted)
        if start >= end:
            break
        if ends_at > start:
            end += ends_at - start
            counted = ends_at
    return end
