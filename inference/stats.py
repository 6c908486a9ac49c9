"""Figures of the whole server for `/api/stats`, `/metrics` and the pages: what backbones, market and queue say now.

Aggregates only, nothing personal: nodes appear by their number, never by the name that somebody gave them.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import redis
from django.conf import settings
from django.core.cache import cache
from django.db import DatabaseError

from inference import backbone_status, jobs
from inference.backbone_status import Status
from inference.hot_set import unpack_flags
from market import queries
from market.builds import BuildDescription
from market.errors import UnknownBuild
from relay.outage import Outage

logger = logging.getLogger(__name__)

# Pages of many visitors ask every few seconds; the figures change once a second.
FRESH_SECONDS = 1
CACHE_KEY = "inference/stats"
SUMS = ("sequences_active", "sequences_waiting", "sequences_limit", "tokens_per_second", "tokens_generated",
        "prompt_tokens", "reused_tokens", "decodes", "failed_decodes")  # fmt: skip

Stats = dict[str, Any]

# Many visitors ask at once, and each would wait as long as Redis is given to answer.
_redis = Outage(logger, "Redis, where the statistics come from,", quiet_seconds=2.0)


def snapshot() -> Stats:
    """The figures, at most FRESH_SECONDS old. While Redis does not answer they are those of the database alone."""
    if _redis.is_fresh:
        return collect(has_redis=False)
    try:
        found: Stats | None = cache.get(CACHE_KEY)
        if found is None:
            found = collect()
            cache.set(CACHE_KEY, found, FRESH_SECONDS)
    except redis.RedisError as error:
        _redis.failed(error)
        return collect(has_redis=False)
    return found


def collect(*, has_redis: bool = True) -> Stats:
    """Every figure now. Parts that cannot be asked are empty, and `reachable` says so.

    has_redis: False: it did not answer a moment ago, and is not asked.
    """
    statuses: list[Status] = []
    if has_redis:
        statuses, has_redis = _statuses()
    # Where the cache is away the market does not know whom it saw, so it is not asked.
    builds = current_builds if has_redis or not settings.REDIS_URL else _no_builds
    try:
        market, nodes = market_part(builds(statuses))
        queue, has_database = queue_part(), True
    except DatabaseError as error:
        logger.warning("statistics without the database: %s", error)
        (market, nodes), queue, has_database = market_part([]), {}, False
    except redis.RedisError as error:
        _redis.failed(error)
        (market, nodes), queue, has_redis, has_database = market_part([]), queue_part(), False, True
    return {
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "reachable": {"redis": has_redis, "database": has_database},
        "engine": engine_part(statuses),
        "backbones": [backbone_part(status) for status in statuses],
        "rows": row_counts(statuses),
        "row_totals": row_totals(statuses),
        "moments": summed(statuses, "moments"),
        "audits": summed(statuses, "audits"),
        "owners": owners_part(statuses),
        "hot_sets": hot_sets_part(statuses),
        "rings": rings_part(statuses),
        "failures": failures_part(statuses),
        "workers": workers_part(statuses, holding=len(nodes)),
        **market,
        "queue": queue,
    }


def _statuses() -> tuple[list[Status], bool]:
    if not settings.REDIS_URL:
        return [], False
    try:
        with redis.Redis.from_url(settings.REDIS_URL, **settings.REDIS_ANSWER_OPTIONS) as client:
            statuses = backbone_status.all_statuses(client)
    except redis.RedisError as error:
        _redis.failed(error)
        return [], False
    _redis.answered()
    return statuses, True


def _no_builds(statuses: Iterable[Status]) -> list[BuildDescription]:
    return []


def current_builds(statuses: Iterable[Status]) -> list[BuildDescription]:
    """The builds that living backbones serve; without any, the one that was published last."""
    found = []
    for fingerprint in dict.fromkeys(str(status["build"]) for status in statuses):
        try:
            found.append(queries.build(fingerprint))
        except UnknownBuild:
            continue  # its experts cannot be lent, so it was never published
    return found or queries.builds()[-1:]


def engine_part(statuses: Sequence[Status]) -> Stats:
    sums = {name: sum(status.get(name, 0) for status in statuses) for name in SUMS}
    return {
        "ready": bool(statuses),
        "backbones": len(statuses),
        "model": statuses[0]["model"] if statuses else None,
        **sums,
    }


def backbone_part(status: Status) -> Stats:
    names = ("boot", "build", "model", "kernel_class", "started", "at", "sessions", "replicas", "relays_connected",
             "rows", *SUMS)  # fmt: skip
    return {name: status.get(name) for name in names}


def row_counts(statuses: Iterable[Status]) -> dict[str, int]:
    """Rows ((token, expert) pairs of a layer) since the backbones started, by where they were computed."""
    return summed(statuses, "rows")


def summed(statuses: Iterable[Status], name: str) -> dict[str, int]:
    """Counters of one kind over all backbones since they started."""
    counts: Counter[str] = Counter()
    for status in statuses:
        counts.update(status.get(name, {}))
    return dict(sorted(counts.items()))


def row_totals(statuses: Iterable[Status]) -> Stats:
    """The same in three: computed by workers, by the backbone, by the backbone because a worker did not answer."""
    places = row_counts(statuses)
    kinds = {
        kind: sum(rows for place, rows in places.items() if place.startswith(kind))
        for kind in ("remote", "local", "fallback")
    }
    total = sum(kinds.values())
    return {**kinds, "remote_share": kinds["remote"] / total if total else 0.0}


def workers_part(statuses: Sequence[Status], *, holding: int) -> Stats:
    """live: workers that a backbone uses; holding: nodes with a verified replica, according to the market."""
    most = {name: max((status.get(name, 0) for status in statuses), default=0) for name in ("workers", "sessions")}
    return {"live": most["workers"], "sessions": most["sessions"], "holding": holding}


def owners_part(statuses: Iterable[Status]) -> list[Stats]:
    """How long each node takes to answer, as each backbone measured it; the slowest first."""
    found = [
        {"backbone": status["boot"], "node": node, **times}
        for status in statuses
        for node, times in status.get("owners", {}).items()
    ]
    return sorted(found, key=lambda owner: (-owner["seconds"], owner["node"]))


def rings_part(statuses: Iterable[Status]) -> list[Stats]:
    """Of every backbone that serves rings: whether one is whole, over which stages, and what became of steps."""
    return [{"backbone": status["boot"], **status["rings"]} for status in statuses if status.get("rings")]


def hot_sets_part(statuses: Iterable[Status]) -> list[Stats]:
    """Each backbone's hot set in figures; which experts they are says `hot_experts`."""
    return [
        {"backbone": status["boot"], **{name: value for name, value in status["hot_set"].items() if name != "flags"}}
        for status in statuses
        if "hot_set" in status
    ]


def hot_experts(statuses: Iterable[Status], build: BuildDescription) -> npt.NDArray[np.bool_]:
    """Experts that a backbone of this build computes itself because they are hot: (offered layers, experts), in the
    order of `build.layers`, as `queries.coverage` has them."""
    layers = list(build.layers)
    found = np.zeros((len(layers), build.experts_per_layer), bool)
    for status in statuses:
        if status["build"] == build.fingerprint and "hot_set" in status:
            flags = unpack_flags(status["hot_set"]["flags"], status["hot_set"]["layers"], build.experts_per_layer)
            found |= flags[layers]
    return found


def failures_part(statuses: Iterable[Status]) -> list[Stats]:
    """Requests to workers that failed since the backbones started, the most frequent first."""
    counts: Counter[tuple[str, str]] = Counter()
    for status in statuses:
        for node, code, count in status.get("failures", []):
            counts[node, code] += count
    return [{"node": node, "code": code, "count": count} for (node, code), count in counts.most_common()]


def market_part(builds: Sequence[BuildDescription]) -> tuple[Stats, set[str]]:
    """Claims and experts, and the nodes with a verified replica.

    An expert is offered, claimed (pending or live) and live in that order.
    """
    experts: Counter[str] = Counter(offered=0, claimed=0, live=0, replicas_live=0)
    claims: Counter[str] = Counter(pending=0, live=0)
    nodes: set[str] = set()
    least: list[int] = []
    for build in builds:
        live, claimed = queries.live_coverage(build.fingerprint), queries.coverage(build.fingerprint)
        experts["offered"] += live.size
        experts["claimed"] += int((claimed > 0).sum())
        experts["live"] += int((live > 0).sum())
        experts["replicas_live"] += int(live.sum())
        least.append(int(live.min()))
        counts, holding = queries.open_claim_counts(build.fingerprint)
        claims.update(counts)
        nodes |= holding
    return {"claims": dict(claims), "experts": {**experts, "replicas_least": min(least, default=0)}}, nodes


def queue_part() -> Stats:
    return {**jobs.open_counts(), "limit": settings.API_QUEUE_LENGTH}
