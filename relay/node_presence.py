"""What one worker session tells the market of its device: that it is there, that it went, whether it is the newest.

Presence is a hint: a market that cannot be asked costs nothing but that placement learns of a silence later.
"""

import logging
from collections.abc import Awaitable
from time import monotonic

from relay.admission import Authenticator
from relay.errors import MarketAway

logger = logging.getLogger(__name__)

# However often it is heard, the market is told this often.
PRESENCE_SECONDS = 10.0


class NodePresence:
    """session: names it among all sessions of all relays."""

    def __init__(self, authenticator: Authenticator, node_id: str, session: str) -> None:
        self._authenticator = authenticator
        self.node_id = node_id
        self._session = session
        self._marked = 0.0

    async def is_newest(self) -> bool:
        """False once the device has opened another session, here or elsewhere. Raises MarketAway."""
        return await self._authenticator.is_newest(self.node_id, self._session)

    async def mark_seen(self, heard: float) -> None:
        """heard: when (monotonic) something came from it last."""
        if monotonic() - self._marked >= PRESENCE_SECONDS and heard > self._marked:
            self._marked = monotonic()
            await self._tell(self._authenticator.mark_seen(self.node_id), "seen")

    async def mark_left(self) -> None:
        """Its socket closed, or it fell silent; nothing is said where a newer session of the device is there."""
        await self._tell(self._leave(), "gone")

    async def _leave(self) -> None:
        if await self.is_newest():
            await self._authenticator.mark_left(self.node_id)

    async def _tell(self, telling: Awaitable[None], what: str) -> None:
        try:
            await telling
        except MarketAway as error:
            logger.debug("node %s could not be marked as %s: %s", self.node_id, what, error)
        except Exception:
            logger.exception("node %s could not be marked as %s", self.node_id, what)
