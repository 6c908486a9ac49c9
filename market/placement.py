"""Which experts a device should hold: runs inside one layer, ranked by what they pay. Pure numpy.

A run is at most RUN_LIMIT experts of one layer. Experts with the fewest replicas come first, up to the policy's target;
then those in demand, up to the target of their own (market.targets); then spare copies, of everything once before of
anything twice. So devices that together can hold everything cover every expert once before any expert twice. Within a
tier the run with the greatest price per hour wins; ties go to the lowest layer, then the lowest expert, so that the
same market always gives the same answer.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from market.builds import BuildDescription
from market.coverage import Replicas
from market.demand import felt_demand
from market.errors import BudgetTooSmall, FullyCovered, MarketError, TypesUnsupported
from market.policy import Policy
from market.pricing import hourly_prices, rate_per_teraflop
from market.targets import target_replicas

RUN_LIMIT = 64
# Where little is missing it is handed out in short runs: each is served as soon as it is downloaded.
HEALING_RUN_LIMIT = 8
HEALING_SHARE = 1 / 4


@dataclass(frozen=True)
class Run:
    """Experts [first, last) of one layer, with its size and what it may earn per hour at full use."""

    layer: int
    first: int
    last: int
    size_bytes: int
    price_microcredits_per_hour: int
    rate_microcredits_per_teraflop: int
    replicas: int


@dataclass(frozen=True)
class BuildMarket:
    """One build as one device sees it. Arrays are (layers, experts) in the build's order of layers.

    held: what this device holds already; computable (layers,): layers whose ggml types the device can compute.
    silent: those of the replicas whose device has not been seen for a while. They count where no claim may be one too
    many, but not as coverage: by the time their lease is over, somebody else holds the slice. strain: how badly the
    present replicas serve, 0 to 1 (market.strain), None: nobody said.
    """

    build: BuildDescription
    replicas: Replicas
    rows_per_hour: NDArray[np.float64]
    held: NDArray[np.bool_]
    computable: NDArray[np.bool_]
    policy: Policy
    budget_microcredits_per_hour: int
    silent: Replicas | None = None
    strain: NDArray[np.float64] | None = None

    @property
    def present(self) -> Replicas:
        """Replicas whose device is there: (layers, experts)."""
        return self.replicas if self.silent is None else self.replicas - self.silent

    @property
    def targets(self) -> Replicas:
        """Replicas wanted of each expert: (layers, experts)."""
        return target_replicas(self.felt_demand, np.array(self.build.expert_bytes), self.present, self.policy)

    @property
    def felt_demand(self) -> NDArray[np.float64]:
        """What prices and targets are made of: rows per hour, more where those who are there do not serve well. What a
        replica can expect to be asked for is still `rows_per_hour`."""
        return felt_demand(self.rows_per_hour, self.strain)

    def prices(self) -> NDArray[np.int64]:
        return hourly_prices(self.felt_demand, self.present, self.policy, self.budget_microcredits_per_hour)

    def open(self) -> NDArray[np.bool_]:
        """Experts that this device may still claim: (layers, experts) bool."""
        return (self.replicas < self.policy.maximum_replicas) & ~self.held & self.computable[:, None]

    def smallest_expert_bytes(self) -> int | None:
        """Bytes of the smallest expert on offer that the device can compute; None when there is none."""
        sizes = np.array(self.build.expert_bytes)[self.computable]
        return int(sizes.min()) if sizes.size else None

    def tiers(self) -> list[NDArray[np.bool_]]:
        """Open experts, most wanted first: no replica, one, ... up to the policy's target, then those in demand that
        are below their own target, then the first spare copy of each, then all others."""
        present, targets, base = self.present, self.targets, self.policy.target_replicas
        wanted = [present == count for count in range(base)]
        extra = [(present >= base) & (present < targets), present == targets, present > targets]
        claimable = self.open()
        return [tier & claimable for tier in (*wanted, *extra)]


def run_at(market: BuildMarket, row: int, first: int, last: int, prices: NDArray[np.int64] | None = None) -> Run:
    """The run [first, last) of the layer in row `row`, priced as the market stands."""
    prices = market.prices() if prices is None else prices
    price = int(prices[row, first:last].sum())
    shared = market.rows_per_hour[row, first:last] / (market.present[row, first:last] + 1.0)
    return Run(
        layer=market.build.layers[row],
        first=first,
        last=last,
        size_bytes=(last - first) * market.build.expert_bytes[row],
        price_microcredits_per_hour=price,
        rate_microcredits_per_teraflop=rate_per_teraflop(
            price, float(shared.sum()), market.build.flops_per_row, market.policy
        ),
        replicas=int(market.present[row, first:last].min()),
    )


def _run_lengths(tier: NDArray[np.bool_], limits: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each start, how many experts of the tier follow in a row, cut to the layer's limit: (layers, experts)."""
    experts = tier.shape[1]
    index = np.arange(experts)
    # The next expert outside the tier, seen from each start: a running minimum from the right.
    ends = np.minimum.accumulate(np.where(tier, experts, index)[:, ::-1], axis=1)[:, ::-1]
    return np.minimum(ends - index, limits[:, None])


def _values(tier: NDArray[np.bool_], prices: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The price of the longest run from each start; -1 where no run starts."""
    sums = np.zeros((prices.shape[0], prices.shape[1] + 1), np.int64)
    np.cumsum(prices, axis=1, out=sums[:, 1:])
    starts = np.arange(prices.shape[1])
    ends = starts + lengths
    values = np.take_along_axis(sums, ends, axis=1) - sums[:, :-1]
    return np.where(tier & (lengths > 0), values, -1)


def _limits(market: BuildMarket, budget_bytes: int) -> NDArray[np.int64]:
    """Experts of each layer that fit into the budget, at most RUN_LIMIT: (layers,)."""
    return np.minimum(budget_bytes // np.array(market.build.expert_bytes, np.int64), RUN_LIMIT)


def rank_runs(market: BuildMarket, budget_bytes: int) -> list[Run]:
    """The best run of every layer for a budget, most wanted tier first, then by price per byte, ties by layer."""
    prices = market.prices()
    limits = _limits(market, budget_bytes)
    found: dict[int, tuple[int, Run]] = {}
    for number, tier in enumerate(market.tiers()):
        lengths = _run_lengths(tier, limits)
        values = _values(tier, prices, lengths)
        best = values.argmax(axis=1)
        for row in np.flatnonzero(values.max(axis=1) >= 0).tolist():
            first = int(best[row])
            run = run_at(market, row, first, first + int(lengths[row, first]), prices)
            found.setdefault(run.layer, (number, run))
    ranked = sorted(found.values(), key=lambda item: (item[0], -_per_byte(item[1]), item[1].layer))
    return [run for _, run in ranked]


def presets(build: BuildDescription) -> list[tuple[int, int]]:
    """Memory budgets in whole experts of this build's largest size: (experts, bytes), doubling up to everything."""
    largest, total = max(build.expert_bytes), build.experts_per_layer * len(build.layers)
    counts = [count for count in (1, 2, 4, 8, 16, 32, 64, 128, 256) if count < total]
    return [(count, count * largest) for count in [*counts, total]]


def why_no_runs(market: BuildMarket, budget_bytes: int) -> MarketError:
    """The reason that nothing fits, as the error that says it: BudgetTooSmall, TypesUnsupported or FullyCovered."""
    noun = "expert" if market.build.kind == "experts" else "unit"
    smallest = market.smallest_expert_bytes()
    if smallest is None:
        return TypesUnsupported("this device computes none of the ggml types on offer")
    wanted = market.open().any(axis=1)
    if not wanted.any():
        return FullyCovered(f"every {noun} has enough replicas at the moment; ask again later")
    minimum = int(np.array(market.build.expert_bytes)[wanted].min())
    return BudgetTooSmall(
        f"{budget_bytes} bytes hold no {noun}; the smallest wanted one needs {minimum} bytes", minimum
    )


def _per_byte(run: Run) -> float:
    return run.price_microcredits_per_hour / run.size_bytes


def best_runs(market: BuildMarket, budget_bytes: int, limit: int) -> list[Run]:
    """Runs for the whole budget, at most `limit` of them, the most wanted first; empty when nothing fits."""
    prices = market.prices()
    taken = np.zeros_like(market.held)
    chosen: list[Run] = []
    for number, tier in enumerate(market.tiers()):
        healing = number <= market.policy.target_replicas and tier.mean() < HEALING_SHARE
        longest = HEALING_RUN_LIMIT if healing else RUN_LIMIT
        while len(chosen) < limit:
            left = tier & ~taken
            lengths = _run_lengths(left, np.minimum(_limits(market, budget_bytes), longest))
            values = _values(left, prices, lengths)
            if values.size == 0 or values.max() < 0:
                break
            row, first = divmod(int(values.argmax()), values.shape[1])
            run = run_at(market, row, first, first + int(lengths[row, first]), prices)
            taken[row, run.first : run.last] = True
            budget_bytes -= run.size_bytes
            chosen.append(run)
    return chosen
