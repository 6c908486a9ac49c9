"""What the next replica of each expert may earn. Pure numpy, no clock, no randomness.

The operator's budget per hour is cut into one share per expert, and each expert's share into one slice per replica:

    price(expert, k) = budget x heat(expert) / sum of heats x scarcity(k)        microcredits per hour, rounded down

heat      1 to HEAT_LIMIT, rises with the expert's demand relative to the mean;
scarcity  falls with every replica k that somebody has claimed already; over all k below the maximum it sums to 1.

So the price rises with demand and with deficit, falls at once when somebody claims, and is bounded; and the prices of
all replicas that could ever be claimed sum to the budget at most. A replica below the target always pays more than any
replica above it, however hot that one is: HEAT_LIMIT x EXTRA_WEIGHT < LAST_WANTED_WEIGHT.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from market.kinds import BuildKind
from market.policy import Policy

HEAT_LIMIT = 4.0
EXTRA_WEIGHT = 1 / 16
LAST_WANTED_WEIGHT = 1 / 2
FLOPS_PER_TERAFLOP = 10**12
# The part of the budget that builds get alike, asked for or not: without it, nobody would hold a new build.
EQUAL_SHARE = 1 / 4
# When a device is gone its cap stays reserved until its lease ends; whoever takes its slice over needs one as well.
TAKEOVER_SHARE = 1 / 5
# Of what builds get alike, the dense path takes so much where the experts of a model take 1: it is the smaller part of
# a model, and the backbone that offers it computes it as well.
ALIKE_WEIGHTS: Mapping[BuildKind, float] = {"experts": 1.0, "stages": 1 / 4}

Prices = NDArray[np.int64]


def heat(rows_per_hour: NDArray[np.float64]) -> NDArray[np.float64]:
    """Demand (layers, experts) -> 1 for an expert that nobody asks for, up to HEAT_LIMIT for a hot one."""
    mean = float(rows_per_hour.mean()) if rows_per_hour.size else 0.0
    if mean <= 0:
        return np.ones_like(rows_per_hour)
    return 1.0 + np.minimum(rows_per_hour / mean, HEAT_LIMIT - 1.0)


def scarcity_table(policy: Policy) -> NDArray[np.float64]:
    """Share of an expert's money for replica number k = 0 .. maximum; strictly falling, sums to 1, 0 at the maximum.

    Below the target from 1 down to just above LAST_WANTED_WEIGHT in equal steps, then EXTRA_WEIGHT halved every time.
    """
    target, maximum = policy.target_replicas, policy.maximum_replicas
    weights = [1.0 - (1.0 - LAST_WANTED_WEIGHT) * k / target for k in range(target)]
    weights += [EXTRA_WEIGHT * 0.5**k for k in range(maximum - target)]
    table = np.array([*weights, 0.0])
    shares: NDArray[np.float64] = table / table.sum()
    return shares


def hourly_prices(
    rows_per_hour: NDArray[np.float64], replicas: NDArray[np.uint16], policy: Policy, budget_microcredits_per_hour: int
) -> Prices:
    """What one more replica of each expert may earn per hour: (layers, experts) int64 microcredits.

    budget_microcredits_per_hour: this build's part of the operator's budget.
    """
    heats = heat(rows_per_hour)
    table = scarcity_table(policy)
    slot = np.minimum(replicas, policy.maximum_replicas)
    prices: Prices = np.floor(budget_microcredits_per_hour * (heats / heats.sum()) * table[slot]).astype(np.int64)
    return prices


def priced_budget(budget_microcredits_per_hour: int) -> int:
    """The part of the budget that prices are made of; the rest pays those who take over while old leases still run."""
    return int(budget_microcredits_per_hour * (1 - TAKEOVER_SHARE))


def build_budgets(
    operations_per_hour: Sequence[float], kinds: Sequence[BuildKind], budget_microcredits_per_hour: int
) -> list[int]:
    """Each build's part of the operator's budget: EQUAL_SHARE of it alike, the rest by the work that is asked for.

    operations_per_hour: of each build, what its router asked for. Without any, all is shared alike, which means by
    ALIKE_WEIGHTS between kinds.
    """
    weights = [ALIKE_WEIGHTS[kind] for kind in kinds]
    alike = [weight / sum(weights) for weight in weights]
    total = sum(operations_per_hour)
    if total <= 0:
        return [math.floor(budget_microcredits_per_hour * share) for share in alike]
    shares = [
        EQUAL_SHARE * equal + (1 - EQUAL_SHARE) * asked / total
        for equal, asked in zip(alike, operations_per_hour, strict=True)
    ]
    return [math.floor(budget_microcredits_per_hour * min(share, 1.0)) for share in shares]


def rate_per_teraflop(price_per_hour: int, rows_per_hour: float, flops_per_row: int, policy: Policy) -> int:
    """Microcredits for 10^12 operations: what makes the expected traffic earn the hourly price, up to the ceiling.

    rows_per_hour: what one more replica of the range would be asked for. Without traffic the ceiling holds.
    """
    expected = rows_per_hour * flops_per_row / FLOPS_PER_TERAFLOP
    if price_per_hour >= policy.price_ceiling_microcredits_per_teraflop * expected:
        return policy.price_ceiling_microcredits_per_teraflop
    return max(1, int(price_per_hour / expected))


def work_price(rows: int, flops_per_row: int, rate_microcredits_per_teraflop: int) -> int:
    """Integer microcredits for `rows` answers, rounded down; the fraction stays with the treasury."""
    return rows * flops_per_row * rate_microcredits_per_teraflop // FLOPS_PER_TERAFLOP
