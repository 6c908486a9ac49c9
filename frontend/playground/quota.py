"""How much an address may ask of the playground: requests per minute, and tokens per hour. Staff asks without limit."""

import ipaddress
import time

from django.conf import settings
from django.core.cache import cache
from django.utils.crypto import salted_hmac

from inference import rate_limit
from inference.openai import errors
from inference.openai.errors import ApiError

HOUR_SECONDS = 60 * 60
IPV6_NETWORK_BITS = 64


def asker(address: str, salt: str) -> str:
    """A digest of who asks: nothing of the address is kept. An IPv6 network counts as one: a home owns a whole one."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return salted_hmac(salt, address).hexdigest()[:16]
    bits = IPV6_NETWORK_BITS if parsed.version == 6 else 32
    network = ipaddress.ip_network((parsed, bits), strict=False)
    return salted_hmac(salt, str(network)).hexdigest()[:16]


def charge(address: str, tokens: int) -> None:
    """Counts one request for at most so many tokens. Raises ApiError (429) above either limit."""
    who = asker(address, "frontend.try")
    wait = rate_limit.seconds_to_wait(f"try/{who}", settings.DEMO_REQUESTS_PER_MINUTE)
    if wait:
        raise errors.too_many_requests(settings.DEMO_REQUESTS_PER_MINUTE, wait)
    limit = settings.DEMO_TOKENS_PER_HOUR
    hour, passed = divmod(int(time.time()), HOUR_SECONDS)
    key = f"try/tokens/{who}/{hour}"
    cache.add(key, 0, 2 * HOUR_SECONDS)
    if cache.incr(key, tokens) > limit:
        # What was refused is not counted: a shorter answer may still fit.
        cache.decr(key, tokens)
        left = max(0, limit - int(cache.get(key, 0)))
        raise ApiError(
            429,
            f"Visitors may ask for {limit} tokens per hour, {left} are left. Ask for fewer, or use an API key.",
            code="rate_limit_exceeded",
            retry_after_seconds=HOUR_SECONDS - passed,
        )
