"""What happened to a device, event by event, and what operators wrote to it: plain reads for pages."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q

from market.events import NodeMessaged, layer_stream
from market.models import Claim
from market.models import Event as EventRow

EVENTS_SHOWN = 100
MESSAGES_SHOWN = 20
CLAIMS_SEARCHED = 16
# Fields that the page has already, or that nobody reads.
_SILENT_FIELDS = ("node_id", "token_sha256", "sha256", "at", "postings", "key", "build", "window_start", "fence")


@dataclass(frozen=True)
class Happening:
    """One event of a device. what: its body in a few words."""

    position: int
    at: datetime
    name: str
    what: str


@dataclass(frozen=True)
class Message:
    at: datetime
    text: str
    by: str


def node_history(node_id: str, limit: int = EVENTS_SHOWN) -> list[Happening]:
    """The last events about a device, newest first: its own stream, its money, and its claims."""
    streams = [f"{kind}/{node_id}" for kind in ("node", "credit", "ledger")]
    rows = list(EventRow.objects.filter(stream__in=streams).order_by("-position")[:limit])
    rows += _claim_events(node_id, limit)
    rows.sort(key=lambda row: -row.position)
    return [Happening(row.position, row.recorded_at, row.name, _in_words(row.body)) for row in rows[:limit]]


def _claim_events(node_id: str, limit: int) -> list[EventRow]:
    """Events of the device's last claims. A claim's first event is at version `fence` of its layer's stream, so the
    index of streams and versions finds where to begin; the body says which claim."""
    found = Q()
    for claim in Claim.objects.filter(node_id=node_id).order_by("-claim_id")[:CLAIMS_SEARCHED]:
        stream = layer_stream(claim.build, claim.layer)
        found |= Q(stream=stream, version__gte=claim.fence, body__claim_id=claim.claim_id)
    return list(EventRow.objects.filter(found).order_by("-position")[:limit]) if found else []


def messages(node_id: str, limit: int = MESSAGES_SHOWN) -> list[Message]:
    """What operators wrote to the device, newest first."""
    rows = EventRow.objects.filter(stream=f"node/{node_id}", name=NodeMessaged.NAME).order_by("-version")
    return [Message(row.recorded_at, row.body["text"], row.body["by"]) for row in rows[:limit]]


def _in_words(body: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')}: {_short(value)}" for name, value in body.items()
                     if name not in _SILENT_FIELDS and value not in (None, ""))  # fmt: skip


def _short(value: object) -> str:
    return f"{len(value)} entries" if isinstance(value, list) else str(value)
