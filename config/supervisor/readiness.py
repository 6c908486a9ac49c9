"""How far a starting server has come, read from its own `/api/stats`. Standard library only."""

import http.client
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

STATS_PATH = "/api/stats"
ASK_SECONDS = 5.0


@dataclass(frozen=True)
class Readiness:
    """`experts_offered` counts (layer, expert) pairs of the model that workers may hold; `experts_live` those held."""

    answers: bool = False
    backbone: bool = False
    workers_live: int = 0
    experts_live: int = 0
    experts_offered: int = 0

    @property
    def is_covered(self) -> bool:
        return 0 < self.experts_offered <= self.experts_live


def judge(status: int, stats: Any, since: float = 0.0) -> Readiness:
    """Reads what `/api/stats` answered; anything unexpected counts as not ready.

    since: Unix time. A backbone that started earlier is one that was killed and whose word has not faded yet.
    """
    if status != http.client.OK or not isinstance(stats, dict):
        return Readiness(answers=status < http.client.INTERNAL_SERVER_ERROR)
    engine, experts, workers = (_part(stats, name) for name in ("engine", "experts", "workers"))
    return Readiness(
        answers=True,
        backbone=engine.get("ready") is True and not _has_ghosts(stats, since),
        workers_live=int(workers.get("live", 0)),
        experts_live=int(experts.get("live", 0)),
        experts_offered=int(experts.get("offered", 0)),
    )


def _part(stats: dict[str, Any], name: str) -> dict[str, Any]:
    part = stats.get(name)
    return part if isinstance(part, dict) else {}


def _has_ghosts(stats: dict[str, Any], since: float) -> bool:
    backbones = stats.get("backbones")
    started = [one.get("started") for one in backbones if isinstance(one, dict)] if isinstance(backbones, list) else []
    return any(moment < since for moment in started if isinstance(moment, float))


def ask(url: str, since: float = 0.0) -> Readiness:
    """Asks the server at `url` (http://host:port), directly and never through a proxy."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=ASK_SECONDS)
    try:
        connection.request("GET", STATS_PATH, headers={"Accept": "application/json"})
        answer = connection.getresponse()
        body = answer.read()
        return judge(answer.status, json.loads(body) if answer.status == http.client.OK else None, since)
    except (OSError, http.client.HTTPException, ValueError):
        # Refused, reset or cut short: the server is still starting.
        return Readiness()
    finally:
        connection.close()
