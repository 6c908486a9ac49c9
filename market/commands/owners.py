"""People behind devices: their accounts, and how a person is erased while the books stay.

An account is a random id in events; its name and where its money goes stand in OwnerProfile, which is no event.
"""

import secrets
from datetime import datetime

from django.utils import timezone

from market import queries, store
from market.commands.nodes import checked_reason, ended_claims, known_node, link_node, readable_name, short
from market.errors import BadRequest
from market.events import Event, NodeErased
from market.models import Node, NodeProfile, OwnerProfile

PAYEE_LIMIT = 200


def create_owner(name: str = "", payee: str = "") -> str:
    """A new account; its id. payee: what the payment provider needs to pay, such as an IBAN. Raises BadRequest."""
    owner_id = secrets.token_hex(16)
    OwnerProfile.objects.create(owner_id=owner_id, name=readable_name(name), payee=_payee(payee))
    return owner_id


def set_payee(owner_id: str, payee: str) -> None:
    """Where the account's money goes from the next payout on. Raises BadRequest."""
    if not OwnerProfile.objects.filter(owner_id=owner_id).update(payee=_payee(payee)):
        raise BadRequest(f"there is no account {owner_id!r}")


def set_node_payee(node_id: str, payee: str, *, now: datetime | None = None) -> None:
    """Where the earnings of this device go: its account's payee, in a new account when it has none.

    Raises UnknownNode, BadRequest.
    """
    tidy = _payee(payee)
    with store.writing():
        owner_id = known_node(node_id).owner_id
        if owner_id:
            set_payee(owner_id, tidy)
        elif tidy:
            link_node(node_id, create_owner("", tidy), by="owner", reason="a payee for this device", now=now)


def _payee(payee: str) -> str:
    tidy = " ".join(payee.split())
    if len(tidy) > PAYEE_LIMIT or not tidy.isprintable():
        raise BadRequest(f"payee must be at most {PAYEE_LIMIT} printable characters")
    return tidy


def erase_node(node_id: str, *, by: str, reason: str, now: datetime | None = None) -> None:
    """Deletes the device's name and token and ends its claims; its books stay. Raises UnknownNode, BadRequest."""
    _erase([known_node(node_id).node_id], by, reason, now or timezone.now())


def erase_owner(owner_id: str, *, by: str, reason: str, now: datetime | None = None) -> list[str]:
    """Deletes what is known of a person, with the names and tokens of all their devices; the devices' ids.

    Money that was not paid out yet stays in the devices' accounts, to be adjusted away: nobody is left to pay.
    Raises BadRequest when there is no such account.
    """
    if not OwnerProfile.objects.filter(owner_id=owner_id).exists():
        raise BadRequest(f"there is no account {owner_id!r}")
    node_ids = sorted(Node.objects.filter(owner_id=owner_id).values_list("node_id", flat=True))
    with store.writing():
        _erase(node_ids, by, reason, now or timezone.now())
        OwnerProfile.objects.filter(owner_id=owner_id).delete()
    return node_ids


def _erase(node_ids: list[str], by: str, reason: str, at: datetime) -> None:
    who, why = short(by), checked_reason(reason)
    with store.writing() as writer:
        for node_id in node_ids:
            if queries.node(node_id) is None or known_node(node_id).erased:
                continue
            erased: list[Event] = [NodeErased(node_id, who, why, at), *ended_claims(node_id, "erased", at)]
            writer.append(erased)
        NodeProfile.objects.filter(node_id__in=node_ids).delete()
