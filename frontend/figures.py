"""What the pages show, as plain values: read from the queries of the apps, ready for a template."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone

from frontend.heat_map import LEGEND, HeatMap, heat_map
from inference import jobs
from inference.stats import Stats
from inference.stats import snapshot as stats_snapshot
from market import offers, presence, queries
from market.builds import BuildDescription
from market.errors import MarketError
from market.placement import presets
from market.queries import ClaimView

# A node is connected when it was seen within this time: relays mark it at every ping.
CONNECTED_SECONDS = 35.0
WORKERS_SHOWN = 100
ERRORS_SHOWN = 5
IDLE_WORDS = {
    "not_claimed": "has not started yet: run the command on the device",
    "not_verified": "downloads its experts, or waits for their check",
    "cap_reached": "has earned this hour's most; it goes on in the next hour",
}


@dataclass(frozen=True)
class WorkerLine:
    """A node that holds experts. answer_milliseconds: as the backbone measured it, None: no answer yet."""

    name: str
    experts: int
    pending: int
    size_bytes: int
    connected: bool
    answer_milliseconds: float | None


@dataclass(frozen=True)
class ErrorLine:
    what: str
    count: int
    at: datetime | None = None


@dataclass(frozen=True)
class Overview:
    """Everything on the first page that changes."""

    stats: Stats
    maps: tuple[tuple[BuildDescription, HeatMap], ...]
    workers: tuple[WorkerLine, ...]
    more_workers: int
    errors: tuple[ErrorLine, ...]
    at: datetime
    legend: tuple[tuple[int, str], ...] = LEGEND


@dataclass(frozen=True)
class DeviceLine:
    """One device as its owner sees it. state: a word for its badge; reason: why it earns nothing, else empty."""

    name: str
    state: str
    reason: str
    connected: bool
    last_seen: datetime | None
    experts_live: int
    experts_pending: int
    size_bytes: int
    earned_microcredits: int
    balance_microcredits: int


@dataclass(frozen=True)
class Preset:
    experts: int
    size_bytes: int


def overview() -> Overview:
    stats = stats_snapshot()
    builds = shown_builds(stats)
    maps = tuple((build, map_of(build)) for build in builds)
    claims = [claim for build in builds for claim in queries.open_claims(build.fingerprint)]
    workers = worker_lines(claims, stats)
    return Overview(
        stats=stats,
        maps=maps,
        workers=tuple(workers[:WORKERS_SHOWN]),
        more_workers=max(0, len(workers) - WORKERS_SHOWN),
        errors=tuple(error_lines(stats)),
        at=timezone.now(),
    )


def shown_builds(stats: Stats) -> list[BuildDescription]:
    """The builds of living backbones; without any, the one that was published last."""
    published = {build.fingerprint: build for build in queries.builds()}
    alive = dict.fromkeys(str(backbone["build"]) for backbone in stats["backbones"])
    return [published[build] for build in alive if build in published] or list(published.values())[-1:]


def map_of(build: BuildDescription) -> HeatMap:
    return heat_map(build.layers, queries.live_coverage(build.fingerprint), queries.coverage(build.fingerprint))


def worker_lines(claims: list[ClaimView], stats: Stats) -> list[WorkerLine]:
    """Nodes that hold or claim experts: connected ones first, then by how much they hold."""
    of_node: dict[str, list[ClaimView]] = defaultdict(list)
    for claim in claims:
        of_node[claim.node_id].append(claim)
    names, seen = queries.node_names(of_node), presence.last_seen(of_node)
    answers = {owner["node"]: 1000.0 * owner["seconds"] for owner in reversed(stats["owners"])}
    lines = [
        WorkerLine(
            name=names.get(node, node),
            experts=_experts(held, "live"),
            pending=_experts(held, "pending"),
            size_bytes=sum(claim.size_bytes for claim in held),
            connected=is_connected(seen.get(node)),
            answer_milliseconds=answers.get(node),
        )
        for node, held in of_node.items()
    ]
    return sorted(lines, key=lambda line: (not line.connected, -line.experts, line.name))


def _experts(claims: list[ClaimView], state: str) -> int:
    return sum(claim.last - claim.first for claim in claims if claim.state == state)


def is_connected(seen: datetime | None) -> bool:
    return seen is not None and timezone.now() - seen < timedelta(seconds=CONNECTED_SECONDS)


def error_lines(stats: Stats) -> list[ErrorLine]:
    """Failed generations, newest first, then the most frequent failures of workers."""
    failed = [ErrorLine(f"generation: {code}", 1, at) for at, code in jobs.recent_failures(ERRORS_SHOWN)]
    failures = stats["failures"][:ERRORS_SHOWN]
    names = queries.node_names(failure["node"] for failure in failures)
    return failed + [
        ErrorLine(f"worker {names.get(failure['node'], failure['node'])}: {failure['code']}", failure["count"])
        for failure in failures
    ]


def budget_presets() -> list[Preset]:
    """Budgets in whole experts of the shown model and their real bytes; empty while nothing is on offer."""
    builds = shown_builds(stats_snapshot())
    return [Preset(experts, size) for experts, size in presets(builds[0])] if builds else []


def device_line(node_id: str) -> DeviceLine | None:
    """A device by its number; None when there is none."""
    node = queries.node(node_id)
    if node is None:
        return None
    claims = queries.node_claims(node_id)
    idle = offers.idle_reason(node, claims)
    reason = str(idle) if isinstance(idle, MarketError) else IDLE_WORDS.get(idle or "", "")
    seen = presence.last_seen([node_id]).get(node_id)
    return DeviceLine(
        name=node.name,
        state=_state(node.suspended, claims, seen),
        reason=reason,
        connected=is_connected(seen),
        last_seen=seen,
        experts_live=_experts(claims, "live"),
        experts_pending=_experts(claims, "pending"),
        size_bytes=sum(claim.size_bytes for claim in claims),
        earned_microcredits=sum(claim.earned_microcredits for claim in claims),
        balance_microcredits=sum(queries.balances(node_id).values()),
    )


def _state(suspended: bool, claims: list[ClaimView], seen: datetime | None) -> str:
    if suspended:
        return "suspended"
    if not is_connected(seen):
        return "away" if seen else "new"
    return "working" if any(claim.state == "live" for claim in claims) else "getting ready"
