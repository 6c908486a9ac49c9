"""What happened to a device, event by event, and what operators wrote to it: plain reads for pages."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from market.events import NodeMessaged
from market.models import Claim
from market.models import Event as EventRow

EVENTS_SHOWN = 100
MESSAGES_SHOWN = 20
CLAIMS_SEARCHED = 200
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
    """Events of the device's last claims; the index of streams finds the layers, the body says which claim."""
    claims = Claim.objects.filter(node_id=node_id).order_by("-claim_id").values_list("claim_id", "build", "layer")
    found = list(claims[:CLAIMS_SEARCHED])
    streams = {f"build/{build}/layer/{layer}" for _, build, layer in found}
    numbers = [claim_id for claim_id, _, _ in found]
    rows = EventRow.objects.filter(stream__in=streams, body__claim_id__in=numbers)
    return list(rows.order_by("-position")[:limit])


def messages(node_id: str) -> list[Message]:
    """What operators wrote to the device, newest first."""
    rows = EventRow.objects.filter(stream=f"node/{node_id}", name=NodeMessaged.NAME).order_by("-version")
    return [Message(row.recorded_at, row.body["text"], row.body["by"]) for row in rows[:MESSAGES_SHOWN]]


def _in_words(body: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')}: {_short(value)}" for name, value in body.items()
                     if name not in _SILENT_FIELDS and value not in (None, ""))  # fmt: skip


def _short(value: object) -> str:
    return f"{len(value)} entries" if isinstance(value, list) else str(value)
