"""The rules of a grant: which ranges may be claimed, what money is left for them, which facts follow. Pure.

`market.commands.claims` applies them under the append lock, `market.simulation` to an event log in memory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from market.errors import AlreadyHeld, BudgetExhausted, OverSubscribed, RangeOutside
from market.events import ClaimGranted, layer_stream
from market.hours import SECONDS_PER_HOUR, first_hour_allowance
from market.placement import RUN_LIMIT, BuildMarket, Run, run_at


@dataclass(frozen=True)
class RangeWish:
    """Experts [first, last) of a layer that a device asks for."""

    layer: int
    first: int
    last: int


@dataclass(frozen=True)
class Purse:
    """The operator's money at one moment. Two sums stay within the budget, whatever comes and goes:

    reserved_microcredits_per_hour: the caps of all open claims;
    owed_this_hour: what open claims may earn in this clock hour, plus what ended ones have earned in it.
    """

    budget_microcredits_per_hour: int
    reserved_microcredits_per_hour: int
    owed_this_hour: int
    now: datetime

    def remaining(self) -> int:
        """The greatest cap that a claim may be granted now, in microcredits per hour; may be negative."""
        unreserved = self.budget_microcredits_per_hour - self.reserved_microcredits_per_hour
        left_seconds = first_hour_allowance(SECONDS_PER_HOUR, self.now)
        unowed = self.budget_microcredits_per_hour - self.owed_this_hour
        return min(unreserved, unowed * SECONDS_PER_HOUR // left_seconds)


def wished_runs(market: BuildMarket, ranges: Sequence[RangeWish]) -> list[Run]:
    """Checks each range against the market as the ranges before it leave it, and prices it; changes `market`.

    Raises RangeOutside, AlreadyHeld, OverSubscribed.
    """
    runs = []
    for wish in ranges:
        row = market.build.row_of(wish.layer)
        if row is None:
            raise RangeOutside(f"layer {wish.layer} is not on offer in build {market.build.fingerprint}")
        if not 0 <= wish.first < wish.last <= market.build.experts_per_layer or wish.last - wish.first > RUN_LIMIT:
            raise RangeOutside(
                f"experts {wish.first} to {wish.last} of layer {wish.layer}: a range has 1 to {RUN_LIMIT} experts "
                f"between 0 and {market.build.experts_per_layer}"
            )
        where = (row, slice(wish.first, wish.last))
        if market.held[where].any():
            raise AlreadyHeld(f"this device has claimed experts of layer {wish.layer} in that range already")
        if (market.replicas[where] >= market.policy.maximum_replicas).any():
            raise OverSubscribed(f"experts of layer {wish.layer} in that range have enough replicas; ask for others")
        runs.append(run_at(market, row, wish.first, wish.last))
        market.replicas[where] += 1
        market.held[where] = True
    return runs


def within_budget(runs: Sequence[Run], purse: Purse, *, all_or_none: bool) -> list[Run]:
    """The runs with caps cut, all in the same proportion, so that the purse is never overdrawn.

    Raises BudgetExhausted when nothing is left.
    """
    remaining = max(0, purse.remaining())
    wanted = max(1, remaining, sum(run.price_microcredits_per_hour for run in runs))
    cut = [
        replace(run, price_microcredits_per_hour=run.price_microcredits_per_hour * remaining // wanted) for run in runs
    ]
    affordable = [run for run in cut if run.price_microcredits_per_hour > 0]
    if not affordable or (all_or_none and len(affordable) < len(runs)):
        raise BudgetExhausted("the budget for this hour is reserved by other devices; ask again later")
    return affordable


def grants(
    build: str, node_id: str, runs: Sequence[Run], last_claim_id: int, versions: Mapping[str, int], now: datetime
) -> list[ClaimGranted]:
    """One event per run, in the order of streams; claim ids in the order of the runs, the most wanted one first.

    versions: of every layer's stream, as read under the append lock. The fence is the version that the event will have
    in its stream: it only grows, and nobody else can get it.
    """
    numbered = sorted(enumerate(runs, last_claim_id + 1), key=lambda item: (item[1].layer, item[1].first))
    fences = dict(versions)
    granted = []
    for claim_id, run in numbered:
        stream = layer_stream(build, run.layer)
        fences[stream] = fences.get(stream, 0) + 1
        granted.append(
            ClaimGranted(
                claim_id=claim_id,
                fence=fences[stream],
                node_id=node_id,
                build=build,
                layer=run.layer,
                first=run.first,
                last=run.last,
                size_bytes=run.size_bytes,
                rate_microcredits_per_teraflop=run.rate_microcredits_per_teraflop,
                cap_microcredits_per_hour=run.price_microcredits_per_hour,
                at=now,
            )
        )
    return granted
