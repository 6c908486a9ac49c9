"""Who may open an account or enrol a device: everybody, whoever has an invite, or nobody new.

Invites are no events: they say who may come, not what happened. Of a code only its digest is stored.
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from django.conf import settings
from django.db.models import F
from django.utils import timezone

from market.commands.nodes import readable_name
from market.errors import BadInvite, BadRequest, InvitesUsed, RegistrationClosed
from market.models import Invite

CODE_BYTES = 12
CODE_LENGTH_LIMIT = 100
MOST_USES = 10_000
INVITE_DAYS = 14
# The server's own workers come with the code in this file of VAR_DIR, which `manage.py up` makes and hands to them.
LOCAL_INVITE_FILE = "local.invite"


class Registration(StrEnum):
    OPEN = "open"
    INVITE = "invite"
    CLOSED = "closed"


@dataclass(frozen=True)
class OpenInvite:
    note: str
    uses_left: int
    expires_at: datetime


def mode() -> Registration:
    """Raises ValueError for a word that `manage.py check` refuses, too."""
    return Registration(settings.REGISTRATION)


def admit(code: str, *, now: datetime | None = None) -> None:
    """Lets one account or device in; uses the code up where one is needed. Raises RegistrationClosed, BadInvite.

    Call it in a transaction with what it admits: what fails afterwards gives the use back.
    """
    if mode() is Registration.OPEN or _is_local(code):
        return
    if mode() is Registration.CLOSED:
        raise RegistrationClosed("nobody new is let in here at the moment")
    moment = now or timezone.now()
    valid = Invite.objects.filter(code_sha256=_digest(code.strip()), uses_left__gt=0, expires_at__gt=moment)
    if not code.strip() or not valid.update(uses_left=F("uses_left") - 1):
        raise BadInvite("an invite code is needed here, and this is none, or it is used up or too old")


def make_invite(
    note: str = "", *, by: str, uses: int = 1, days: int = INVITE_DAYS, owner_id: str = "", now: datetime | None = None
) -> str:
    """A code for so many accounts or devices, shown once. owner_id: the account that invites, "": the operator.

    Raises BadRequest, and InvitesUsed when the account has INVITES_PER_ACCOUNT open ones.
    """
    if not 1 <= uses <= MOST_USES or not 1 <= days <= 366:
        raise BadRequest(f"an invite has 1 to {MOST_USES} uses and 1 to 366 days")
    moment = now or timezone.now()
    limit = settings.INVITES_PER_ACCOUNT
    if owner_id and len(open_invites(owner_id, now=moment)) >= limit:
        raise InvitesUsed(f"an account may have {limit} open invites; wait until one is used or too old")
    code = secrets.token_urlsafe(CODE_BYTES)
    Invite.objects.create(
        code_sha256=_digest(code),
        note=readable_name(note),
        uses_left=uses,
        expires_at=moment + timedelta(days=days),
        made_by=by[:80],
        owner_id=owner_id,
    )
    return code


def open_invites(owner_id: str, *, now: datetime | None = None) -> list[OpenInvite]:
    """What an account has given out and nobody has used; oldest first. "": the operator's."""
    found = Invite.objects.filter(owner_id=owner_id, uses_left__gt=0, expires_at__gt=now or timezone.now())
    return [OpenInvite(one.note, one.uses_left, one.expires_at) for one in found.order_by("pk")]


def _digest(code: str) -> str:
    return hashlib.sha256(code[:CODE_LENGTH_LIMIT].encode("utf-8", "replace")).hexdigest()


def _is_local(code: str) -> bool:
    try:
        expected = (settings.VAR_DIR / LOCAL_INVITE_FILE).read_text(encoding="utf-8").strip()
    except OSError:
        return False
    return bool(expected) and hmac.compare_digest(code.encode("utf-8", "replace"), expected.encode())
