"""The timetable of a chaotic run: which blow falls when, from a seed. Pure."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Blow(StrEnum):
    """What is done to the server or its workers."""

    JOIN = "join"
    LEAVE = "leave"
    KILL = "kill"
    HANG = "hang"
    LIE = "lie"
    RESTART_WEB = "restart_web"
    RESTART_REDIS = "restart_redis"
    KILL_BACKBONE = "kill_backbone"
    KILL_STAGE = "kill_stage"
    HANG_STAGE = "hang_stage"


WORKER_BLOWS = (Blow.JOIN, Blow.LEAVE, Blow.KILL, Blow.HANG, Blow.LIE)
# Seconds between two blows to workers; a server blow needs time to heal before the next one.
GAP_SECONDS = (2.0, 5.0)
SERVER_BLOWS_EVERY_SECONDS = 75.0
# A ring needs a moment to come back and to read its sequences again.
STAGE_BLOWS = (Blow.KILL_STAGE, Blow.HANG_STAGE)
STAGE_GAP_SECONDS = (6.0, 12.0)


@dataclass(frozen=True)
class TimedBlow:
    """at: seconds after the start; detail: a number that the blow may use (which lie, how long a hang)."""

    at: float
    blow: Blow
    detail: float


def timetable(seconds: float, seed: int, *, with_stages: bool = False) -> Sequence[TimedBlow]:
    """Every kind at least once; the backbone is killed exactly once, before half of the time. with_stages: there are
    stages to strike."""
    chance = random.Random(seed)
    found = [
        TimedBlow(seconds * 0.15, Blow.RESTART_WEB, 0.0),
        TimedBlow(seconds * 0.4, Blow.KILL_BACKBONE, 0.0),
        TimedBlow(seconds * 0.7, Blow.RESTART_REDIS, 0.0),
    ]
    moment = seconds * 0.7 + SERVER_BLOWS_EVERY_SECONDS
    while moment < seconds * 0.95:
        found.append(TimedBlow(moment, chance.choice([Blow.RESTART_WEB, Blow.RESTART_REDIS]), 0.0))
        moment += SERVER_BLOWS_EVERY_SECONDS
    moment = 0.5
    bag: list[Blow] = []
    while moment < seconds:
        if not bag:
            bag = list(WORKER_BLOWS)
            chance.shuffle(bag)
        found.append(TimedBlow(moment, bag.pop(), chance.random()))
        moment += chance.uniform(*GAP_SECONDS)
    moment, number = STAGE_GAP_SECONDS[0], 0
    while with_stages and moment < seconds:
        found.append(TimedBlow(moment, STAGE_BLOWS[number % 2], chance.random()))
        moment, number = moment + chance.uniform(*STAGE_GAP_SECONDS), number + 1
    return sorted(found, key=lambda blow: blow.at)
