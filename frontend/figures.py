"""What the pages show, as plain values: read from the queries of the apps, ready for a template."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from frontend.heat_map import HeatMap, heat_map
from frontend.stages import run_words
from inference.stats import Stats
from inference.stats import snapshot as stats_snapshot
from market import offers, presence, queries
from market.builds import BuildDescription
from market.errors import MarketError
from market.kinds import NodeRole
from market.placement import presets
from market.queries import ClaimView

# A node is connected when it was seen within this time: relays mark it at every ping.
CONNECTED_SECONDS = 35.0
IDLE_WORDS = {
    "not_claimed": _("has not started yet: open its link, or run its command"),
    "not_verified": _("downloads what it holds, or waits for its check"),
    "cap_reached": _("has earned this hour's most; it goes on in the next hour"),
}


@dataclass(frozen=True)
class DeviceLine:
    """One device as its owner sees it. state: a word for its badge; reason: why it earns nothing, else empty.

    stage: the layers that a stage holds, in words.
    """

    name: str
    role: NodeRole
    state: str
    reason: str
    connected: bool
    last_seen: datetime | None
    experts_live: int
    experts_pending: int
    size_bytes: int
    earned_microcredits: int
    balance_microcredits: int
    stage: str


@dataclass(frozen=True)
class Preset:
    experts: int
    size_bytes: int


def shown_builds(stats: Stats) -> list[BuildDescription]:
    """The builds of living backbones; without any, the one that was published last."""
    published = {build.fingerprint: build for build in queries.builds()}
    alive = dict.fromkeys(str(backbone["build"]) for backbone in stats["backbones"])
    return [published[build] for build in alive if build in published] or list(published.values())[-1:]


def map_of(build: BuildDescription) -> HeatMap:
    return heat_map(build.layers, queries.live_coverage(build.fingerprint), queries.coverage(build.fingerprint))


def _experts(claims: list[ClaimView], state: str) -> int:
    return sum(claim.last - claim.first for claim in claims if claim.state == state)


def is_connected(seen: datetime | None) -> bool:
    return seen is not None and timezone.now() - seen < timedelta(seconds=CONNECTED_SECONDS)


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
    reason = str(idle) if isinstance(idle, MarketError) else str(IDLE_WORDS.get(idle or "", ""))
    seen = presence.last_seen([node_id]).get(node_id)
    return DeviceLine(
        name=node.name,
        role=node.role,
        state=_state(node.suspended, claims, seen),
        reason=reason,
        connected=is_connected(seen),
        last_seen=seen,
        experts_live=_experts(claims, "live"),
        experts_pending=_experts(claims, "pending"),
        size_bytes=sum(claim.size_bytes for claim in claims),
        earned_microcredits=sum(claim.earned_microcredits for claim in claims),
        balance_microcredits=sum(queries.balances(node_id).values()),
        stage=_stage_words(claims) if node.role == "stage" else "",
    )


def _stage_words(claims: list[ClaimView]) -> str:
    return ", ".join(run_words(claim.build, claim.first, claim.last) for claim in claims)


def _state(suspended: bool, claims: list[ClaimView], seen: datetime | None) -> str:
    if suspended:
        return gettext("suspended")
    if not is_connected(seen):
        return gettext("away") if seen else gettext("new")
    return gettext("working") if any(claim.state == "live" for claim in claims) else gettext("getting ready")
