"""Devices: enrolment, tokens, suspension, owners, planned leave."""

import re
import secrets
import unicodedata
from datetime import datetime, timedelta

from django.conf import settings
from django.utils import timezone

from market import queries, store
from market.commands.ending import end_events
from market.errors import BadRequest, DeviceCapReached, UnknownNode
from market.events import (
    Event,
    NodeLeaving,
    NodeLinked,
    NodeMessaged,
    NodeRegistered,
    NodeReinstated,
    NodeStayed,
    NodeSuspended,
    NodeTokenRevoked,
    NodeTokenRotated,
)
from market.kinds import NodeRole
from market.models import Claim, Node, NodeProfile, OwnerProfile
from market.rows import OPEN_STATES

NAME_LIMIT = 60
REASON_LIMIT = 200
BY_LIMIT = 80
LEAVE_LIMIT = timedelta(days=366)
BUDGET_LIMIT_BYTES = 1 << 50
_KERNEL_CLASS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+:/-]{0,119}")


def register_node(
    name: str,
    kernel_class: str,
    budget_bytes: int | None = None,
    *,
    role: NodeRole = "worker",
    now: datetime | None = None,
) -> tuple[str, str]:
    """Enrols a device: its id, and its token, which is shown once and stored nowhere. Raises BadRequest.

    role: what it holds from now on, see market.kinds.
    """
    shown_name = readable_name(name)
    if not _KERNEL_CLASS.fullmatch(kernel_class):
        raise BadRequest("kernel_class must be 1 to 120 letters, digits or . _ + : / - such as ggml-0.25.3+avx2")
    if budget_bytes is not None and not 0 < budget_bytes <= BUDGET_LIMIT_BYTES:
        raise BadRequest("budget_bytes must be a positive number of bytes")
    node_id, token = secrets.token_hex(8), _new_token()
    digest, moment = queries.token_sha256(token), now or timezone.now()
    with store.writing() as writer:
        writer.append([NodeRegistered(node_id, kernel_class, budget_bytes, digest, moment, role)])
        NodeProfile.objects.create(node_id=node_id, name=shown_name or f"device {node_id[:6]}")
    return node_id, token


def readable_name(name: str) -> str:
    """The name as it will be shown: one line, normalised, at most NAME_LIMIT characters; empty stays empty.

    Raises BadRequest for characters that do not print, such as controls and marks that turn the writing direction.
    """
    tidy = " ".join(unicodedata.normalize("NFC", name).split())
    if len(tidy) > NAME_LIMIT or not tidy.isprintable():
        raise BadRequest(f"name must be at most {NAME_LIMIT} printable characters")
    return tidy


def _new_token() -> str:
    """256 random bits."""
    return secrets.token_urlsafe(32)


def rotate_token(node_id: str, *, by: str = "owner", reason: str = "", now: datetime | None = None) -> str:
    """A new token; the old one stops working at once. Raises UnknownNode, and BadRequest for an erased device."""
    token = _new_token()
    with store.writing() as writer:
        if known_node(node_id).erased:
            raise BadRequest(f"node {node_id} was erased; register the device again")
        digest = queries.token_sha256(token)
        writer.append([NodeTokenRotated(node_id, digest, short(by), one_line(reason), now or timezone.now())])
    return token


def revoke_token(node_id: str, *, by: str, reason: str, now: datetime | None = None) -> None:
    """The token stops working and none takes its place; claims end. Raises UnknownNode, BadRequest."""
    moment, why = now or timezone.now(), checked_reason(reason)
    with store.writing() as writer:
        known_node(node_id)
        writer.append([NodeTokenRevoked(node_id, short(by), why, moment), *ended_claims(node_id, "revoked", moment)])


def suspend_node(node_id: str, *, reason: str, by: str, now: datetime | None = None) -> None:
    """Ends the node's claims and forbids new ones, until it is reinstated; its owner can read the reason.

    What it has earned stays held. Raises UnknownNode, and BadRequest without a reason.
    """
    moment, why = now or timezone.now(), checked_reason(reason)
    with store.writing() as writer:
        if known_node(node_id).suspended:
            return
        suspended = NodeSuspended(node_id, why, short(by), moment)
        writer.append([suspended, *ended_claims(node_id, "suspended", moment)])


def reinstate_node(node_id: str, *, by: str, reason: str = "", now: datetime | None = None) -> None:
    """Ends a suspension or quarantine; forfeited rewards stay forfeited. Raises UnknownNode."""
    with store.writing() as writer:
        if known_node(node_id).suspended:
            writer.append([NodeReinstated(node_id, short(by), one_line(reason), now or timezone.now())])


def link_node(node_id: str, owner_id: str, *, by: str, reason: str, now: datetime | None = None) -> None:
    """The device belongs to this account from now on; an empty id: to none.

    Raises UnknownNode, BadRequest, and DeviceCapReached when the account has DEVICES_PER_ACCOUNT.
    """
    if owner_id and not OwnerProfile.objects.filter(owner_id=owner_id).exists():
        raise BadRequest(f"there is no account {owner_id!r}; make one first")
    with store.writing() as writer:
        if known_node(node_id).owner_id != owner_id:
            _check_device_cap(owner_id)
            why = checked_reason(reason)
            writer.append([NodeLinked(node_id, owner_id, short(by), why, now or timezone.now())])


def _check_device_cap(owner_id: str) -> None:
    """Raises DeviceCapReached. Inside the lock of the writer, so that two cannot take the last place."""
    limit = settings.DEVICES_PER_ACCOUNT
    if owner_id and Node.objects.filter(owner_id=owner_id, erased_at__isnull=True).count() >= limit:
        raise DeviceCapReached(f"an account has at most {limit} devices; remove one first")


def plan_leave(
    node_id: str, leaves_at: datetime, *, by: str = "owner", reason: str = "", now: datetime | None = None
) -> None:
    """The device claims nothing new, and gives everything back at that time. Raises UnknownNode, BadRequest."""
    moment = now or timezone.now()
    if leaves_at.tzinfo is None or not moment <= leaves_at <= moment + LEAVE_LIMIT:
        raise BadRequest("leaves_at must be a time with a zone, between now and a year from now")
    who, why = short(by), one_line(reason)
    with store.writing() as writer:
        if known_node(node_id).leaves_at != leaves_at:
            writer.append([NodeLeaving(node_id, leaves_at, why, who, moment)])


def message_node(node_id: str, text: str, *, by: str, now: datetime | None = None) -> None:
    """Words to the owner, shown where the device's state is. Raises UnknownNode, BadRequest."""
    said, who = checked_reason(text), short(by)
    with store.writing() as writer:
        if known_node(node_id).erased:
            raise BadRequest(f"node {node_id} was erased: nobody reads its messages")
        writer.append([NodeMessaged(node_id, said, who, now or timezone.now())])


def cancel_leave(node_id: str, *, now: datetime | None = None) -> None:
    """The device stays, or is back. Raises UnknownNode."""
    with store.writing() as writer:
        if known_node(node_id).leaves_at is not None:
            writer.append([NodeStayed(node_id, now or timezone.now())])


def end_planned_leaves(now: datetime) -> list[str]:
    """Ends the claims of every device whose announced time has come; the ids of those that had any."""
    due = Node.objects.filter(leaves_at__lte=now).values_list("node_id", flat=True)
    holding = Claim.objects.filter(node_id__in=due, state__in=OPEN_STATES)
    left = []
    for node_id in sorted(set(holding.values_list("node_id", flat=True))):
        with store.writing() as writer:
            if ending := ended_claims(node_id, "planned_leave", now):
                writer.append(ending)
                left.append(node_id)
    return left


def ended_claims(node_id: str, reason: str, at: datetime) -> list[Event]:
    """The events that end every open claim of a node."""
    return [event for claim in queries.node_claims(node_id) for event in end_events(claim, reason, at)]


def known_node(node_id: str) -> queries.NodeView:
    """Raises UnknownNode."""
    node = queries.node(node_id)
    if node is None:
        raise UnknownNode(f"no node {node_id!r} has registered")
    return node


def checked_reason(reason: str) -> str:
    """The reason as it is stored: one line, cut. Raises BadRequest when it is empty."""
    if not reason.strip():
        raise BadRequest("give a reason: it is stored, and the owner can read it")
    return one_line(reason)


def one_line(text: str) -> str:
    """A reason or reference as it is stored: one line, cut. Raises BadRequest for characters that do not print."""
    tidy = " ".join(text.split())[:REASON_LIMIT]
    if not tidy.isprintable():
        raise BadRequest("reasons and references have printable characters only")
    return tidy


def short(by: str) -> str:
    """Who it was, as it is stored. Raises BadRequest when it is empty."""
    if not by.strip() or not by.strip().isprintable():
        raise BadRequest("say who does this")
    return by.strip()[:BY_LIMIT]
