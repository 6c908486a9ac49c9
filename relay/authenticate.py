"""The relay's questions to the market: the only module of the relay that imports it.

Each look-up is one hop to a database thread; the event loop never waits for the database.
"""

import hmac
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import redis
from asgiref.sync import sync_to_async
from channels.db import database_sync_to_async
from django.conf import settings
from django.core.cache import cache
from django.db import InterfaceError, OperationalError

from market import presence, queries
from market.errors import UnknownBuild
from relay.admission import Claim, Node, Standing
from relay.errors import MarketAway
from relay.outage import Outage

logger = logging.getLogger(__name__)

BACKBONE_TOKEN_FILE = "backbone.token"
NEWEST_KEY = "relay/newest/"
# Many sessions ask the same question; the log hears of an outage once.
DATABASE = Outage(logger, "the market's database")
CACHE = Outage(logger, "the market's cache", quiet_seconds=1.0)


def backbone_token() -> str:
    """The credential of role B: the setting, else the file in VAR_DIR; empty when there is none (nobody may be one).

    Read for every check, so that a changed file takes effect within one re-check.
    """
    if settings.BACKBONE_TOKEN:
        return str(settings.BACKBONE_TOKEN)
    try:
        return str((settings.VAR_DIR / BACKBONE_TOKEN_FILE).read_text(encoding="utf-8").strip())
    except FileNotFoundError:
        return ""


def _standing(token: str) -> Standing | None:
    node = queries.authenticate(token)
    if node is None:
        return None
    claims = [
        Claim(
            claim_id=claim.claim_id,
            build=claim.build,
            layer=claim.layer,
            first=claim.first,
            last=claim.last,
            fence=claim.fence,
            state=claim.state,
            sha256=claim.sha256,
        )
        for claim in queries.node_claims(node.node_id)
    ]
    return Standing(Node(node.node_id, node.name, node.suspended, node.role), claims)


def _knows_build(build: str) -> bool:
    try:
        queries.build(build)
    except UnknownBuild:
        return False
    return True


@contextmanager
def asking(outage: Outage) -> Iterator[None]:
    """Turns an outage of a store, which passes by itself, into MarketAway; anything else is a defect.

    A store that did not answer a moment ago is not asked again: look-ups of a process wait for each other.
    """
    if outage.is_fresh:
        raise MarketAway("the market did not answer a moment ago")
    try:
        yield
    except (redis.RedisError, OperationalError, InterfaceError) as error:
        outage.failed(error)
        raise MarketAway(str(error)) from error
    outage.answered()


class MarketAuthenticator:
    """`relay.admission.Authenticator` over the market's queries. Everything but `is_backbone` raises MarketAway."""

    def is_backbone(self, token: str) -> bool:
        expected = backbone_token()
        return bool(expected) and hmac.compare_digest(token.encode(), expected.encode())

    async def standing(self, token: str) -> Standing | None:
        with asking(DATABASE):
            standing: Standing | None = await database_sync_to_async(_standing)(token)
        return standing

    async def knows_build(self, build: str) -> bool:
        with asking(DATABASE):
            known: bool = await database_sync_to_async(_knows_build)(build)
        return known

    async def mark_seen(self, node_id: str) -> None:
        with asking(CACHE):
            await sync_to_async(presence.mark_connected)(node_id, datetime.now(UTC))

    async def mark_left(self, node_id: str) -> None:
        with asking(CACHE):
            await sync_to_async(presence.mark_left)(node_id, datetime.now(UTC))

    async def take_over(self, node_id: str, session: str) -> None:
        with asking(CACHE):
            await sync_to_async(cache.set)(NEWEST_KEY + node_id, session, timeout=None)

    async def is_newest(self, node_id: str, session: str) -> bool:
        # A cache that forgot (Redis was restarted) says nothing against anybody.
        with asking(CACHE):
            newest = await sync_to_async(cache.get)(NEWEST_KEY + node_id)
        return newest in (None, session)
