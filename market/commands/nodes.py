"""Devices: enrolment, tokens, suspension."""

import re
import secrets
import unicodedata
from datetime import datetime

from django.utils import timezone

from market import queries, store
from market.commands.ending import end_events
from market.errors import BadRequest, UnknownNode
from market.events import NodeRegistered, NodeReinstated, NodeSuspended, NodeTokenRotated
from market.models import NodeProfile

NAME_LIMIT = 60
REASON_LIMIT = 200
BUDGET_LIMIT_BYTES = 1 << 50
_KERNEL_CLASS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+:/-]{0,119}")


def register_node(
    name: str, kernel_class: str, budget_bytes: int | None = None, *, now: datetime | None = None
) -> tuple[str, str]:
    """Enrols a device: its id, and its token, which is shown once and stored nowhere. Raises BadRequest."""
    shown_name = readable_name(name)
    if not _KERNEL_CLASS.fullmatch(kernel_class):
        raise BadRequest("kernel_class must be 1 to 120 letters, digits or . _ + : / - such as ggml-0.25.3+avx2")
    if budget_bytes is not None and not 0 < budget_bytes <= BUDGET_LIMIT_BYTES:
        raise BadRequest("budget_bytes must be a positive number of bytes")
    node_id, token = secrets.token_hex(8), _new_token()
    with store.writing() as writer:
        writer.append(
            [NodeRegistered(node_id, kernel_class, budget_bytes, queries.token_sha256(token), now or timezone.now())]
        )
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


def rotate_token(node_id: str, *, now: datetime | None = None) -> str:
    """A new token; the old one stops working at once. Raises UnknownNode."""
    token = _new_token()
    with store.writing() as writer:
        _known(node_id)
        writer.append([NodeTokenRotated(node_id, queries.token_sha256(token), now or timezone.now())])
    return token


def suspend_node(node_id: str, *, reason: str, by: str, now: datetime | None = None) -> None:
    """Ends the node's claims and forbids new ones, until it is reinstated; its owner can read the reason.

    Raises UnknownNode, and BadRequest without a reason.
    """
    if not reason.strip():
        raise BadRequest("a suspension needs a reason that the owner can read")
    moment = now or timezone.now()
    with store.writing() as writer:
        if _known(node_id).suspended:
            return
        ending = [end_events(claim, "suspended", moment) for claim in queries.node_claims(node_id)]
        suspended = NodeSuspended(node_id, reason.strip()[:REASON_LIMIT], by[:80], moment)
        writer.append([suspended, *(event for events in ending for event in events)])


def reinstate_node(node_id: str, *, by: str, now: datetime | None = None) -> None:
    """Raises UnknownNode."""
    with store.writing() as writer:
        if _known(node_id).suspended:
            writer.append([NodeReinstated(node_id, by[:80], now or timezone.now())])


def _known(node_id: str) -> queries.NodeView:
    node = queries.node(node_id)
    if node is None:
        raise UnknownNode(f"no node {node_id!r} has registered")
    return node
