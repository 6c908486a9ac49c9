"""The figures behind `/api/stats`, `/metrics` and the pages: what the backbones say, beside what the market knows.

Reads only, holds nothing personal, and works (with zeros) while no backbone is there.
"""

from collections import Counter
from typing import Any

import redis
from django.conf import settings

from inference import backbone_status, jobs
from market import queries
from market.errors import UnknownBuild

ENGINE_SUMS = (
    "sequences_active",
    "sequences_waiting",
    "sequences_limit",
    "tokens_generated",
    "prompt_tokens",
    "tokens_per_second",
    "decodes",
    "failed_decodes",
)


def statuses() -> list[backbone_status.Status]:
    """What each living backbone said last; empty when Redis is not configured."""
    if not settings.REDIS_URL:
        return []
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        return backbone_status.all_statuses(client)


def collect() -> dict[str, Any]:
    """All figures as one JSON object, see docs/api.md. Raises redis.RedisError, django.db.DatabaseError."""
    backbones = statuses()
    rows: Counter[str] = Counter()
    for backbone in backbones:
        rows.update(backbone["rows"])
    return {
        "engine": {
            "ready": bool(backbones),
            "backbones": len(backbones),
            "model": backbones[0]["model"] if backbones else None,
            **{name: sum(backbone[name] for backbone in backbones) for name in ENGINE_SUMS},
        },
        "experts": _experts(backbones),
        "workers": {
            "sessions": max((backbone["sessions"] for backbone in backbones), default=0),
            "live": max((backbone["workers"] for backbone in backbones), default=0),
            "replicas": max((backbone["replicas"] for backbone in backbones), default=0),
        },
        "rows": dict(rows),
        "owners": {node: times for backbone in backbones for node, times in backbone["owners"].items()},
        "failures": [failure for backbone in backbones for failure in backbone["failures"]],
        "queue": {"open": jobs.waiting_count()},
    }


def _experts(backbones: list[backbone_status.Status]) -> dict[str, int]:
    """(layer, expert) pairs on offer in the served build, and how many of them a verified replica holds."""
    if not backbones:
        return {"offered": 0, "live": 0, "claimed": 0}
    build = backbones[0]["build"]
    try:
        live, claimed = queries.live_coverage(build), queries.coverage(build)
    except UnknownBuild:
        return {"offered": 0, "live": 0, "claimed": 0}
    return {"offered": int(live.size), "live": int((live > 0).sum()), "claimed": int((claimed > 0).sum())}
