"""How often somebody may ask: a counter per minute in Django's cache (Redis in production, shared by all processes)."""

import time
from collections.abc import Callable

from django.core.cache import cache

WINDOW_SECONDS = 60


def seconds_to_wait(who: str, limit: int, clock: Callable[[], float] = time.time) -> int:
    """Counts one request of `who`; 0 when it is among the `limit` of this minute, else the seconds until the next one.

    `who` must hold nothing personal that the cache should not keep for a minute or two.
    """
    now = clock()
    window = int(now // WINDOW_SECONDS)
    key = f"rate/{who}/{window}"
    if cache.add(key, 1, 2 * WINDOW_SECONDS):
        count = 1
    else:
        try:
            count = cache.incr(key)
        except ValueError:  # it expired in between
            count = 1
    return 0 if count <= limit else max(1, round((window + 1) * WINDOW_SECONDS - now))
