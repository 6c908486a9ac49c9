"""How much somebody may ask for: a counter per window in Django's cache (Redis in production, shared by all processes).

The one algorithm for every limit and quota: a fixed window, so at its border twice the limit may pass. Reads and
raises nothing of its own; whoever asks says it in its own words (code `rate_limit_exceeded` below /v1/,
`too_many_requests` elsewhere, both with Retry-After).
"""

import ipaddress
import time
from collections.abc import Callable

from django.core.cache import cache
from django.utils.crypto import salted_hmac

WINDOW_SECONDS = 60
IPV6_NETWORK_BITS = 64


def seconds_to_wait(
    who: str,
    limit: int,
    *,
    amount: int = 1,
    window_seconds: int = WINDOW_SECONDS,
    clock: Callable[[], float] = lambda: time.time(),
) -> int:
    """Counts `amount` for `who`; 0 when it is among the `limit` of this window, else the seconds until the next one.

    What is refused is not counted: a smaller amount may still fit. `who` must hold nothing personal that the cache
    should not keep for two windows. Raises RedisError.
    """
    now = clock()
    window = int(now // window_seconds)
    key = _key(who, window)
    cache.add(key, 0, 2 * window_seconds)
    try:
        count = cache.incr(key, amount)
    except ValueError:  # it expired in between
        return 0
    if count <= limit:
        return 0
    cache.decr(key, amount)
    return max(1, round((window + 1) * window_seconds - now))


def left(who: str, limit: int, *, window_seconds: int, clock: Callable[[], float] = lambda: time.time()) -> int:
    """How much of the limit is not used in this window."""
    return max(0, limit - int(cache.get(_key(who, int(clock() // window_seconds)), 0)))


def asker(address: str, salt: str) -> str:
    """A digest of who asks: nothing of the address is kept. An IPv6 network counts as one: a home owns a whole one."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return salted_hmac(salt, address).hexdigest()[:16]
    bits = IPV6_NETWORK_BITS if parsed.version == 6 else 32
    network = ipaddress.ip_network((parsed, bits), strict=False)
    return salted_hmac(salt, str(network)).hexdigest()[:16]


def _key(who: str, window: int) -> str:
    return f"rate/{who}/{window}"
