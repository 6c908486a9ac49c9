"""relay/draining.py: a relay empties itself, backbones first."""

import asyncio

from relay.draining import drain
from relay.frames import FrameType
from tests.relay.test_roster import Swarm


async def test_backbones_hear_first_and_workers_are_asked_to_move_afterwards() -> None:
    swarm = Swarm()
    _, alice = swarm.backbone()
    (bob, bob_link), (carol, carol_link) = swarm.worker("bob"), swarm.worker("carol")

    draining = asyncio.create_task(drain(swarm.roster, 5.0))
    await asyncio.sleep(0.1)
    announced = {frame.session for frame in alice.take(FrameType.DRAIN)}
    too_early = [*bob_link.take(FrameType.DRAIN), *carol_link.take(FrameType.DRAIN)]
    for _ in range(50):
        await asyncio.sleep(0.05)
        for session, link in ((bob, bob_link), (carol, carol_link)):
            if link.take(FrameType.DRAIN):
                swarm.roster.leave_worker(session)
    left = await draining

    assert announced == {bob, carol}
    assert too_early == []
    assert left == 0


async def test_whoever_stays_is_counted_when_the_time_is_up() -> None:
    swarm = Swarm()
    swarm.worker("bob")

    assert await drain(swarm.roster, 0.2) == 1
