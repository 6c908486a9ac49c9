"""When each node was last seen. Not events: a heartbeat is worth nothing the moment the next one arrives.

Kept in Django's cache (Redis in production, shared by all processes). Only the timer that expires leases turns absence
into an event. A cache that cannot be reached raises, so nobody is expired for our own outage.
"""

from collections.abc import Collection, Iterable
from datetime import UTC, datetime

from django.core.cache import cache

KEPT_SECONDS = 24 * 3600
_SINCE_KEY = "market/presence/since"
_LEFT_KEY = "market/presence/left/"
_SILENT_KEY = "market/presence/silent"
# A device that was not seen for this share of its lease does not count as coverage any more; its claims live on.
SILENT_SHARE = 0.4
# Once its connection has been closed for this share of its lease, its replicas are lost; its claims live on.
GONE_SHARE = 0.25
_SILENT_KEPT_SECONDS = 60


def _key(node_id: str) -> str:
    return f"market/presence/{node_id}"


def mark_seen(node_id: str, now: datetime) -> None:
    cache.set(_key(node_id), now.timestamp(), KEPT_SECONDS)


def mark_all_seen(node_ids: Iterable[str], now: datetime) -> None:
    """One round trip for all nodes; relays call it once per ping interval."""
    cache.set_many({_key(node_id): now.timestamp() for node_id in node_ids}, KEPT_SECONDS)


def mark_connected(node_id: str, now: datetime) -> None:
    """Seen, and by a relay that holds its connection: whatever closed before does not matter any more."""
    mark_seen(node_id, now)
    cache.delete(_LEFT_KEY + node_id)


def mark_left(node_id: str, now: datetime) -> None:
    """Its connection closed. The lease goes on, it may be back in a moment; placement does not count on it."""
    cache.set(_LEFT_KEY + node_id, now.timestamp(), KEPT_SECONDS)


def left(node_ids: Iterable[str]) -> dict[str, datetime]:
    """When the connection of each node closed last; nodes whose connection never did are absent."""
    wanted = {_LEFT_KEY + node_id: node_id for node_id in node_ids}
    found = cache.get_many(wanted)
    return {wanted[key]: datetime.fromtimestamp(seconds, UTC) for key, seconds in found.items()}


def last_seen(node_ids: Iterable[str]) -> dict[str, datetime]:
    """The last time of each node that was seen within the last day; other nodes are absent."""
    wanted = {_key(node_id): node_id for node_id in node_ids}
    found = cache.get_many(wanted)
    return {wanted[key]: datetime.fromtimestamp(seconds, UTC) for key, seconds in found.items()}


def recording_since(now: datetime) -> datetime:
    """Since when the cache has been keeping presence: `now` when it has just been emptied.

    A restarted cache knows nobody. Silence counts only from this moment on, or every lease would expire at once.
    """
    seconds = cache.get_or_set(_SINCE_KEY, now.timestamp(), None)
    return now if seconds is None else datetime.fromtimestamp(seconds, UTC)


def note_silent(node_ids: Collection[str]) -> None:
    """Which devices with claims are silent at the moment, said by the market's timer."""
    cache.set(_SILENT_KEY, sorted(node_ids), _SILENT_KEPT_SECONDS)


def silent_nodes() -> list[str]:
    """What the timer said last; nobody when it has not spoken for a minute. One look-up, however many devices."""
    found: list[str] = cache.get(_SILENT_KEY, [])
    return found
