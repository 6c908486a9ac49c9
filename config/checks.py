"""System checks: combinations of settings that cannot work, each with an id. `manage.py check --deploy` asks for more.

Without `--deploy` only what is always wrong is reported, so that tools such as `manage.py inspect` run anywhere.
"""

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from django.conf import LazySettings, settings
from django.core.checks import CheckMessage, Error, Warning, register

from config.environment import DEVELOPMENT_SECRET_KEY

LOOPBACK_HOSTS = {"localhost", "127.0.0.1", "::1", "[::1]"}
MISSED_PINGS = 3
MOST_RECHECK_SECONDS = 30.0


def is_public(values: LazySettings) -> bool:
    """Whether anyone but this machine may reach the server."""
    hosts = {*values.ALLOWED_HOSTS, urlsplit(values.PUBLIC_URL).hostname or "localhost"}
    return not hosts <= LOOPBACK_HOSTS


def server_problems(values: LazySettings) -> Iterator[CheckMessage]:
    address = urlsplit(values.PUBLIC_URL)
    if address.scheme not in {"http", "https"} or not address.hostname:
        yield Error(
            f"PUBLIC_URL is no web address: {values.PUBLIC_URL!r}", "Example: https://swarm.example", id="config.E001"
        )
    if is_public(values) and values.SECRET_KEY == DEVELOPMENT_SECRET_KEY:
        yield Error(
            "SECRET_KEY is the development key, but other machines may reach the server.",
            "Set SECRET_KEY to 50 random characters; `manage.py up` makes one by itself.",
            id="config.E002",
        )
    if is_public(values) and values.DEBUG:
        yield Error("DEBUG is on, but other machines may reach the server.", "Unset DEBUG.", id="config.E003")

    if values.REGISTRATION not in {"open", "invite", "closed"}:
        yield Error(f"REGISTRATION must be open, invite or closed, not {values.REGISTRATION!r}.", id="config.E010")
    if values.LOG_FORMAT not in {"line", "json"}:
        yield Error(f"LOG_FORMAT must be line or json, not {values.LOG_FORMAT!r}.", id="config.E011")


def timer_problems(values: LazySettings) -> Iterator[CheckMessage]:
    dead_seconds = MISSED_PINGS * values.RELAY_PING_SECONDS
    lease_seconds = values.LEASE_SECONDS
    if lease_seconds <= dead_seconds:
        yield Error(
            f"LEASE_SECONDS ({lease_seconds:g}) must exceed three RELAY_PING_SECONDS ({dead_seconds:g}): "
            "a claim would expire before its silent node is given up.",
            id="config.E004",
        )
    if lease_seconds <= values.UPKEEP_SECONDS:
        yield Error("UPKEEP_SECONDS must be below LEASE_SECONDS: leases would end late.", id="config.E005")
    if values.RELAY_RECHECK_SECONDS > MOST_RECHECK_SECONDS:
        yield Error(
            f"RELAY_RECHECK_SECONDS must be at most {MOST_RECHECK_SECONDS:g}: a revoked token would work too long.",
            id="config.E006",
        )
    if values.SPOOL_SECONDS > values.CREDIT_WINDOW_SECONDS:
        yield Error(
            "SPOOL_SECONDS must not exceed CREDIT_WINDOW_SECONDS: a crash would lose a window.", id="config.E007"
        )


def backbone_problems(values: LazySettings) -> Iterator[CheckMessage]:
    if values.BACKBONE_SEQUENCES < values.BACKBONE_LANES:
        yield Error(
            "BACKBONE_SEQUENCES must be at least BACKBONE_LANES: a lane without a sequence idles.", id="config.E008"
        )


def deployment_problems(values: LazySettings) -> Iterator[CheckMessage]:
    if not values.REDIS_URL:
        yield Error(
            "REDIS_URL is not set: the processes of a deployment meet in Redis.",
            "Set REDIS_URL, or start everything with `manage.py up`, which brings its own.",
            id="config.E009",
        )
    if values.DATABASES["default"]["ENGINE"].endswith("sqlite3"):
        yield Warning(
            "The database is SQLite: fine on one machine, too slow and too local for several.",
            "Set DATABASE_URL to a PostgreSQL database.",
            id="config.W001",
        )


@register
def always(app_configs: Sequence[Any] | None, **_: object) -> list[CheckMessage]:
    return [*server_problems(settings), *timer_problems(settings), *backbone_problems(settings)]


@register(deploy=True)
def before_deployment(app_configs: Sequence[Any] | None, **_: object) -> list[CheckMessage]:
    return list(deployment_problems(settings))
