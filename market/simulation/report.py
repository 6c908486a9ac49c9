"""What a simulation showed: one object, and whether it is good enough."""

from dataclasses import asdict, dataclass

from market.fold import State
from market.ledger import TREASURY
from market.simulation.swarm import WARM_UP_SECONDS, Swarm

LEAST_SHARE_AT_TARGET = 0.98
# All targets together, of the bytes online, while any expert has more than the policy's target.
TARGET_BYTES_LIMIT = 0.7


@dataclass(frozen=True)
class Outcome:
    """share_at_target: over experts and time after the warm-up, verified replicas of present devices against the target
    of the moment (the policy's, and more for what is in demand). conservation_error: microcredits that the books do not
    explain. target_bytes_share: the greatest ratio of all targets to the memory online while any expert had extras.
    """

    ok: bool
    seed: int
    devices: int
    hours: float
    experts: int
    target_replicas: int
    share_at_target: float
    least_share_at_target: float
    share_covered: float
    longest_gap_seconds: float
    gaps: int
    mean_gap_seconds: float
    target_bytes_share: float
    target_bytes_share_limit: float
    conservation_error: int
    budget_microcredits_per_hour: int
    most_spent_in_an_hour: int
    most_reserved_per_hour: int
    refused_for_budget: int
    departures: int
    without_a_word: int
    claims: int
    events: int
    warm_up_seconds: float

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def conservation_error(state: State) -> int:
    """The sum of what must be zero: postings, treasury against nodes, credits against earnings of claims."""
    everything = sum(posting.amount_microcredits for posting in state.postings)
    treasury = sum(posting.amount_microcredits for posting in state.postings if posting.account == TREASURY)
    nodes = sum(balance.balance_microcredits for balance in state.balances.values())
    earned = sum(claim.earned_microcredits for claim in state.claims.values())
    return abs(everything) + abs(treasury + nodes) + abs(treasury + earned)


def outcome(swarm: Swarm, *, devices: int, hours: float, seed: int) -> Outcome:
    """Judges a swarm that has run; without any time after the warm-up nothing is good enough."""
    log, seen, policy = swarm.log, swarm.coverage, swarm.policy
    share = sum(seen.shares) / max(1, len(seen.shares))
    error = conservation_error(log.state)
    spent = max(log.spent_by_hour.values(), default=0)
    within = max(spent, log.greatest_reserved) <= policy.budget_microcredits_per_hour
    return Outcome(
        ok=share >= LEAST_SHARE_AT_TARGET and error == 0 and within and swarm.target_bytes_share < TARGET_BYTES_LIMIT,
        seed=seed,
        devices=devices,
        hours=hours,
        experts=seen.held.size,
        target_replicas=policy.target_replicas,
        share_at_target=round(share, 5),
        least_share_at_target=round(min(seen.shares, default=0.0), 5),
        share_covered=round(sum(seen.covered) / max(1, len(seen.covered)), 5),
        longest_gap_seconds=round(seen.longest_gap, 1),
        gaps=seen.gaps,
        mean_gap_seconds=round(seen.gap_seconds / max(1, seen.gaps), 1),
        target_bytes_share=round(swarm.target_bytes_share, 4),
        target_bytes_share_limit=TARGET_BYTES_LIMIT,
        conservation_error=error,
        budget_microcredits_per_hour=policy.budget_microcredits_per_hour,
        most_spent_in_an_hour=spent,
        most_reserved_per_hour=log.greatest_reserved,
        refused_for_budget=swarm.refused_for_budget,
        departures=swarm.departures,
        without_a_word=swarm.vanished,
        claims=log.last_claim_id,
        events=log.state.position,
        warm_up_seconds=WARM_UP_SECONDS,
    )
