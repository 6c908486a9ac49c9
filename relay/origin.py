"""Which web pages may open a socket to the relay: ours, and those of a setting. Pure: header and lists in, answer out.

A browser says in Origin which page opens a socket; no page can change or leave out that header. Programs send none.
Tokens decide who may do what; this only keeps pages of strangers from spending a visitor's connection and processor.
Source: RFC 6455, sections 4.1 and 10.2.
"""

from collections.abc import Sequence
from urllib.parse import urlsplit

from django.http.request import validate_host

Headers = Sequence[tuple[bytes, bytes]]
EVERY = "*"


def may_connect(headers: Headers, own_hosts: Sequence[str], more: Sequence[str]) -> bool:
    """own_hosts: as in ALLOWED_HOSTS, whatever their port; more: whole origins, such as https://lend.example."""
    origins = [value.decode("latin-1").lower() for name, value in headers if name == b"origin"]
    if not origins:
        return True
    if len(origins) > 1:
        return False
    origin = origins[0]
    return EVERY in more or origin in (one.lower().rstrip("/") for one in more) or _is_own(origin, own_hosts)


def _is_own(origin: str, own_hosts: Sequence[str]) -> bool:
    try:
        parts = urlsplit(origin)
        host = parts.hostname
    except ValueError:
        return False
    if parts.scheme not in {"http", "https"} or not host:
        return False
    return validate_host(f"[{host}]" if ":" in host else host, own_hosts)
