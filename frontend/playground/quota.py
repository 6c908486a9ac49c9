"""How much an address may ask of the playground: requests per minute, and tokens per hour. Staff asks without limit."""

from django.conf import settings

from config import rate_limit
from inference.openai import errors
from inference.openai.errors import ApiError

HOUR_SECONDS = 60 * 60


def count_request(address: str) -> None:
    """Counts one request. Raises ApiError (429) above the limit."""
    who = rate_limit.asker(address, "frontend.try")
    wait = rate_limit.seconds_to_wait(f"try/{who}", settings.DEMO_REQUESTS_PER_MINUTE)
    if wait:
        raise errors.too_many_requests(settings.DEMO_REQUESTS_PER_MINUTE, wait)


def charge(address: str, tokens: int) -> None:
    """Counts at most so many tokens. Raises ApiError (429) above the limit."""
    who = rate_limit.asker(address, "frontend.try")
    limit = settings.DEMO_TOKENS_PER_HOUR
    wait = rate_limit.seconds_to_wait(f"try/tokens/{who}", limit, amount=tokens, window_seconds=HOUR_SECONDS)
    if wait:
        left = rate_limit.left(f"try/tokens/{who}", limit, window_seconds=HOUR_SECONDS)
        raise ApiError(
            429,
            f"Visitors may ask for {limit} tokens per hour, {left} are left. Ask for fewer, or use an API key.",
            code="rate_limit_exceeded",
            retry_after_seconds=wait,
        )
