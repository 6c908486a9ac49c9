"""How a relay process that is about to stop empties itself: nobody notices but the workers, who go elsewhere.

Backbones are told first that its workers take no more work; answers that are on their way arrive; then the workers are
asked, a few at a time, to connect to another relay. The event loop of the roster runs this.
"""

import asyncio
from time import monotonic

from relay.frames import Frame, FrameType
from relay.roster import Roster

# Longer than a layer's usual wait for an answer: what was asked before the announcement comes back.
ANSWER_SECONDS = 1.0
LOOK_SECONDS = 0.1
# Of all workers asked to move at once, so that the other relays are not met by all of them in one moment.
SHARE = 8


async def drain(roster: Roster, seconds: float) -> int:
    """Waits until every worker has moved, at most so long; how many are still there."""
    until = monotonic() + seconds
    for session in list(roster.workers):
        roster.drain(session)
    await asyncio.sleep(min(ANSWER_SECONDS, seconds))
    asked: set[int] = set()
    at_once = max(1, len(roster.workers) // SHARE)
    while roster.workers and monotonic() < until:
        waiting = [session for session in roster.workers if session not in asked]
        for session in waiting[:at_once]:
            roster.drain(session)  # it may have come since
            roster.workers[session].link.push(Frame(FrameType.DRAIN))
            asked.add(session)
        await asyncio.sleep(LOOK_SECONDS)
    return len(roster.workers)
