"""Where devices find HTTPS when `manage.py up --lan --tls` runs: the authority that it made, and the https address."""

from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from config.supervisor.authority import AUTHORITY


@dataclass(frozen=True)
class Authority:
    """url: the page that lends, over HTTPS."""

    url: str


def path() -> Path:
    """The authority's certificate, PEM; there is none unless `up --tls` was used."""
    return Path(settings.VAR_DIR) / AUTHORITY


def offered() -> Authority | None:
    """None where the server has no HTTPS of its own: a proxy's certificate is trusted already."""
    if not settings.PUBLIC_URL.startswith("https://") or not path().is_file():
        return None
    return Authority(f"{settings.PUBLIC_URL.rstrip('/')}/worker")
