"""The incident switch: "from t1 to t2 something was our fault". Leases are extended, penalties of that time undone."""

from datetime import datetime, timedelta

from django.db.models import Max
from django.utils import timezone

from market import incidents, store
from market.commands.nodes import checked_reason, short
from market.errors import BadRequest, BrokenHistory, IncidentInForce
from market.events import (
    EarningsForfeited,
    EarningsRestored,
    Event,
    IncidentDeclared,
    NodeQuarantined,
    NodeReinstated,
)
from market.ledger import FORFEITED, PENDING, node_account, transfer
from market.models import Event as EventRow
from market.models import Forfeit, Incident, Node

INCIDENT_LIMIT = timedelta(days=7)


def declare_incident(
    starts_at: datetime, ends_at: datetime, *, by: str, reason: str, now: datetime | None = None
) -> int:
    """Nothing that happened in [starts_at, ends_at) is held against anybody; the id of the incident.

    Silence in that time does not shorten a lease, nobody is quarantined and nothing forfeited while it lasts (ends_at
    may lie ahead), and what was forfeited in it is held again, its nodes reinstated. Claims that ended stay ended:
    their ranges may be somebody else's by now. Raises BadRequest.
    """
    if starts_at.tzinfo is None or ends_at.tzinfo is None:
        raise BadRequest("an incident needs times with a time zone")
    if not timedelta(0) < ends_at - starts_at <= INCIDENT_LIMIT:
        raise BadRequest(f"an incident must end after it starts, within {INCIDENT_LIMIT.days} days")
    moment, who, why = now or timezone.now(), short(by), checked_reason(reason)
    with store.writing() as writer:
        incident_id = (Incident.objects.aggregate(last=Max("incident_id"))["last"] or 0) + 1
        declared = IncidentDeclared(incident_id, starts_at, ends_at, who, why, moment)
        undone = _undone(starts_at, ends_at, by=f"incident {incident_id}", reason=why, at=moment)
        writer.append([declared, *undone[: store.APPEND_LIMIT - 1]])
    return incident_id


def _undone(starts_at: datetime, ends_at: datetime, *, by: str, reason: str, at: datetime) -> list[Event]:
    """What takes back the penalties of a time."""
    events: list[Event] = []
    for forfeit in Forfeit.objects.filter(at__gte=starts_at, at__lt=ends_at, restored_at__isnull=True):
        events.append(restored(forfeit, by=by, reason=reason, at=at))
    for node_id in sorted(Node.objects.filter(quarantined=True).values_list("node_id", flat=True)):
        row = EventRow.objects.filter(stream=f"node/{node_id}", name=NodeQuarantined.NAME).latest("version")
        quarantined = store.to_recorded(row).event
        if isinstance(quarantined, NodeQuarantined) and starts_at <= quarantined.at < ends_at:
            events.append(NodeReinstated(node_id, by, reason, at))
    return events


def restored(forfeit: Forfeit, *, by: str, reason: str, at: datetime) -> EarningsRestored:
    """The event that compensates a forfeit: the same rewards are held again. Raises BrokenHistory."""
    event = store.to_recorded(EventRow.objects.get(position=forfeit.position)).event
    if not isinstance(event, EarningsForfeited):
        raise BrokenHistory(f"position {forfeit.position} is no {EarningsForfeited.NAME}")
    postings = transfer(FORFEITED, node_account(forfeit.node_id, PENDING), forfeit.amount_microcredits)
    return EarningsRestored(forfeit.node_id, forfeit.position, event.parts, by, reason, postings, at)


def refuse_during_incident(moment: datetime) -> None:
    """Raises IncidentInForce."""
    if (incident := incidents.incident_at(moment)) is not None:
        raise IncidentInForce(f"an incident is declared until {incident.ends_at.isoformat()}: nobody is punished now")
