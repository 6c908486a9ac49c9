"""What people did: every event that carries who and why, newest first, found by words, kind or person."""

from dataclasses import dataclass, fields
from datetime import datetime

from django.db.models import Q

from market.events import EVENT_TYPES
from market.models import Event

PAGE_LINES = 100
# Kinds of events that a person can be behind. `market` and `owner` are among the names that they carry.
ACTS = tuple(kind.NAME for kind in EVENT_TYPES if "by" in {field.name for field in fields(kind)})

# Where an event keeps what its person wrote: a reason, or the message itself.
WORDS = ("reason", "text")


@dataclass(frozen=True)
class ActLine:
    position: int
    at: datetime
    name: str
    stream: str
    by: str
    reason: str


@dataclass(frozen=True)
class ActPage:
    """older: ask for lines before this position; None: there are none."""

    lines: tuple[ActLine, ...]
    older: int | None


def acts(words: str = "", name: str = "", by: str = "", before: int | None = None) -> ActPage:
    """Up to PAGE_LINES lines. words: in the reason, the person or the stream; name: kind of event; by: the person."""
    found = Event.objects.filter(name__in=[name] if name in ACTS else ACTS)
    if before is not None:
        found = found.filter(position__lt=before)
    if by:
        found = found.filter(body__by=by)
    for word in words.split():
        found = found.filter(_says(word) | Q(body__by__icontains=word) | Q(stream__icontains=word))
    rows = list(found.order_by("-position")[: PAGE_LINES + 1])
    lines = tuple(_line(row) for row in rows[:PAGE_LINES])
    return ActPage(lines, lines[-1].position if len(rows) > PAGE_LINES else None)


def _line(row: Event) -> ActLine:
    body = row.body
    why = next((str(body[key]) for key in WORDS if key in body), "")
    return ActLine(row.position, row.recorded_at, row.name, row.stream, str(body.get("by", "")), why)


def _says(word: str) -> Q:
    found = Q()
    for key in WORDS:
        found |= Q(**{f"body__{key}__icontains": word})
    return found
