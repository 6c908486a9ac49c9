"""What audits say of a device: trust grows with every pass in a row, a failure ends in quarantine."""

from datetime import datetime

from django.utils import timezone

from market import store
from market.commands.earnings import forfeit_events
from market.commands.incidents import refuse_during_incident
from market.commands.nodes import checked_reason, ended_claims, known_node, short
from market.errors import BadRequest
from market.events import Event, NodeAudited, NodeQuarantined

COUNT_LIMIT = 1 << 31


def record_audits(
    node_id: str, kernel_class: str, passes: int, backbone: str, *, key: str, now: datetime | None = None
) -> int:
    """Answers of the node were recomputed and right; its trust. The same key counts once.

    kernel_class: what computed them; trust that another class earned on this device is gone then.
    Raises UnknownNode, BadRequest. A wrong answer is `quarantine_node`.
    """
    if not 0 < passes < COUNT_LIMIT:
        raise BadRequest("passes must be a positive number")
    with store.writing() as writer:
        known_node(node_id)
        writer.append([NodeAudited(node_id, kernel_class, passes, 0, short(backbone), now or timezone.now())], key=key)
        return known_node(node_id).trust


def quarantine_node(node_id: str, *, reason: str, by: str, now: datetime | None = None) -> int:
    """A wrong answer: suspends the node, ends its claims, voids its held rewards and sets its trust to zero.

    What was voided, in microcredits. Doing it twice is harmless. Raises UnknownNode, BadRequest without a reason, and
    IncidentInForce during an incident: then the fault may be ours.
    """
    moment, who, why = now or timezone.now(), short(by), checked_reason(reason)
    with store.writing() as writer:
        node = known_node(node_id)
        refuse_during_incident(moment)
        forfeits = forfeit_events(node_id, by=who, reason=why, at=moment)
        events: list[Event] = [*forfeits, *ended_claims(node_id, "quarantined", moment)]
        if not node.quarantined:
            events.insert(0, NodeQuarantined(node_id, why, who, moment))
        if events:
            writer.append(events)
    return sum(part.amount_microcredits for event in forfeits for part in event.parts)
