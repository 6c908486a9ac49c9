"""What is wanted and what it pays, for one device: read-only, for the API and for pages."""

from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone

from market import queries, snapshots
from market.builds import BuildDescription
from market.coverage import CoverageSummary, summary
from market.errors import BudgetExhausted, MarketError, NoBuilds, Suspended, WrongKind
from market.kinds import KIND_OF_ROLE
from market.placement import Run, rank_runs, why_no_runs

RANGES_SHOWN = 64
WHOLE_MEMORY_BYTES = 1 << 50
BYTES_PER_MEGABYTE = 10**6


@dataclass(frozen=True)
class Offer:
    """One range on offer. rate: what it may earn per hour at full use, also the cap that a claim reserves."""

    build: str
    run: Run
    rate_microcredits_per_hour: int

    @property
    def microcredits_per_hour_per_megabyte(self) -> float:
        return self.rate_microcredits_per_hour / (self.run.size_bytes / BYTES_PER_MEGABYTE)


@dataclass(frozen=True)
class BuildOnOffer:
    """coverage: by claims of devices that are there; silent ones do not count."""

    build: BuildDescription
    coverage: CoverageSummary


@dataclass(frozen=True)
class Offers:
    """`reason` says why `offers` is empty, and is None when it is not."""

    builds: tuple[BuildOnOffer, ...]
    offers: tuple[Offer, ...]
    reason: MarketError | None


def offers_for(
    node: queries.NodeView,
    budget_bytes: int | None = None,
    build: str | None = None,
    types: frozenset[str] | None = None,
    *,
    now: datetime | None = None,
) -> Offers:
    """Ranges for a device, best first: most wanted, then by reward per megabyte. Raises UnknownBuild, WrongKind.

    Only builds of the kind that the device's role holds. budget_bytes: memory to lend; left out, what the device said
    when it registered, else no limit.
    """
    budget = budget_bytes or node.budget_bytes or WHOLE_MEMORY_BYTES
    kind = KIND_OF_ROLE[node.role]
    on_offer, found = [], []
    reason: MarketError = NoBuilds("no build is on offer yet; ask again later")
    policy = queries.policy()
    remaining = snapshots.purse(now or timezone.now(), policy).remaining()
    for description in [queries.build(build)] if build else queries.builds(kind):
        if description.kind != kind:
            raise WrongKind(f"build {description.fingerprint} offers {description.kind}, this device holds {kind}")
        market = snapshots.build_market(description.fingerprint, node.node_id, types, policy)
        on_offer.append(BuildOnOffer(description, summary(market.present, market.policy.target_replicas)))
        runs = rank_runs(market, budget)
        if not runs:
            reason = why_no_runs(market, budget)
        for run in runs:
            found.append(Offer(description.fingerprint, run, min(run.price_microcredits_per_hour, remaining)))
    if refusal := _refusal(node, remaining):
        return Offers(tuple(on_offer), (), refusal)
    ranked = sorted(found, key=lambda offer: (offer.run.replicas, -offer.microcredits_per_hour_per_megabyte))
    return Offers(tuple(on_offer), tuple(ranked[:RANGES_SHOWN]), None if ranked else reason)


def _refusal(node: queries.NodeView, remaining: int) -> MarketError | None:
    if node.suspended:
        return Suspended(f"this device is suspended: {node.suspended_reason}")
    if remaining <= 0:
        return BudgetExhausted("the budget for this hour is reserved by other devices; ask again later")
    return None


def idle_reason(node: queries.NodeView, claims: list[queries.ClaimView]) -> MarketError | str | None:
    """Why a device earns nothing at the moment, or None when it has live work.

    An error of the market, or one of `not_claimed`, `not_verified`, `cap_reached`.
    """
    if any(claim.state == "live" and not claim.cap_reached for claim in claims):
        return None
    if node.suspended:
        return _refusal(node, 1)
    if any(claim.state == "live" for claim in claims):
        return "cap_reached"
    if claims:
        return "not_verified"
    return offers_for(node).reason or "not_claimed"
