"""Keys of the OpenAI-compatible API: made, listed, checked and revoked. Stored as SHA-256 digests only.

A key is `sk-es-` and 256 random bits, so one fast hash is enough, and looking a digest up in the index tells an
attacker nothing about keys that exist.
"""

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Q
from django.utils import timezone

from config.supervisor import private_file
from inference.errors import BadParameter
from inference.models import ApiKey

KEY_PREFIX = "sk-es-"
KEY_BYTES = 32
KEY_LENGTH_LIMIT = 256
NAME_LENGTH_LIMIT = 100
HINT_LENGTH = 12
# How exact `last_used_at` is: a write per request would be a row that every request locks.
USE_NOTED_EVERY = timedelta(minutes=1)
DEVELOPMENT_FILE = "development.key"


@dataclass(frozen=True)
class KeyView:
    """An API key without its secret. hint: its first characters; trusted_only: only workers that earned trust may see
    rows of its requests."""

    key_id: int
    name: str
    hint: str
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None
    trusted_only: bool = False

    @property
    def is_revoked(self) -> bool:
        return self.revoked_at is not None


def key_sha256(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()


def create_key(name: str, *, trusted_only: bool = False) -> tuple[KeyView, str]:
    """A new key: what is stored, and the key itself, which nobody can read again. Raises BadParameter."""
    key = KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)
    return _view(_store(_checked(name), key, trusted_only)), key


def rotate_key(key_id: int) -> tuple[KeyView, str] | None:
    """Another secret for the same key, shown once; the old one is refused from now on, open answers go on.

    None when there is no valid key with this number.
    """
    key = KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)
    changed = ApiKey.objects.filter(pk=key_id, revoked_at=None).update(key_sha256=key_sha256(key), hint=_hint(key))
    return (_view(ApiKey.objects.get(pk=key_id)), key) if changed else None


def list_keys() -> list[KeyView]:
    """Every key ever made, oldest first."""
    return [_view(row) for row in ApiKey.objects.order_by("pk")]


def revoke_key(key_id: int) -> bool:
    """Ends a key for good; False when there is none with this number or it is revoked already."""
    return bool(ApiKey.objects.filter(pk=key_id, revoked_at=None).update(revoked_at=timezone.now()))


def authenticate(key: str) -> KeyView | None:
    """The valid key that this text is; None for any other text."""
    if not key or len(key) > KEY_LENGTH_LIMIT:
        return None
    row = ApiKey.objects.filter(key_sha256=key_sha256(key), revoked_at=None).first()
    if row is None:
        return None
    _note_use(row)
    return _view(row)


def ensure_development_key(name: str = "development") -> str:
    """The key of whoever runs this server, kept in VAR_DIR (0600): `manage.py up` puts it into run.json.

    Made at the first call; made anew when it was revoked. Raises OSError.
    """
    path = settings.VAR_DIR / DEVELOPMENT_FILE
    key = private_file.secret(path, prefix=KEY_PREFIX)
    row = ApiKey.objects.filter(key_sha256=key_sha256(key)).first()
    if row is not None and row.revoked_at is not None:
        path.unlink()
        key = private_file.secret(path, prefix=KEY_PREFIX)
        row = None
    if row is None:
        _store(_checked(name), key)
    return key


def _checked(name: str) -> str:
    name = " ".join(name.split())
    if not 1 <= len(name) <= NAME_LENGTH_LIMIT:
        raise BadParameter(f"the name of a key must have 1 to {NAME_LENGTH_LIMIT} characters")
    return name


def _store(name: str, key: str, trusted_only: bool = False) -> ApiKey:
    row, _ = ApiKey.objects.get_or_create(
        key_sha256=key_sha256(key), defaults={"name": name, "hint": _hint(key), "trusted_only": trusted_only}
    )
    return row


def _hint(key: str) -> str:
    return f"{key[:HINT_LENGTH]}..."


def _note_use(row: ApiKey) -> None:
    now = timezone.now()
    long_ago = Q(last_used_at=None) | Q(last_used_at__lt=now - USE_NOTED_EVERY)
    if row.last_used_at is None or row.last_used_at < now - USE_NOTED_EVERY:
        ApiKey.objects.filter(long_ago, pk=row.pk).update(last_used_at=now)


def _view(row: ApiKey) -> KeyView:
    return KeyView(row.pk, row.name, row.hint, row.created_at, row.last_used_at, row.revoked_at, row.trusted_only)
