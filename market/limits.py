"""Limits of the node API and of everything that enrols: per address, per device, per account.

Each raises TooManyRequests, with the seconds to wait, and RedisError where nobody can count.
"""

from django.conf import settings

from config import rate_limit
from market.errors import TooManyRequests

# Local workers and tests share one address.
LOOPBACK_FACTOR = 100
LOOPBACK = {"127.0.0.1", "::1", ""}


def count_registration(address: str) -> None:
    """One more device from this address, by form or by program."""
    limit = settings.REGISTRATIONS_PER_MINUTE * (LOOPBACK_FACTOR if address in LOOPBACK else 1)
    who = rate_limit.asker(address, "market.registration")
    _count(f"registration/{who}", limit, "devices per minute register from one address")


def count_device_request(node_id: str) -> None:
    _count(f"device/{node_id}", settings.DEVICE_REQUESTS_PER_MINUTE, "requests per minute come from one device")


def count_account_change(owner: str) -> None:
    """owner: the login's or account's number."""
    _count(f"account/{owner}", settings.ACCOUNT_CHANGES_PER_MINUTE, "changes per minute are made in one account")


def _count(who: str, limit: int, what: str) -> None:
    if wait := rate_limit.seconds_to_wait(who, limit):
        raise TooManyRequests(f"at most {limit} {what}; wait {wait} s", wait)
