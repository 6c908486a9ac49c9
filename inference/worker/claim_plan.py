"""What to do about claims: pure decisions over what the server says and what is held. No I/O, no clock."""

from collections.abc import Collection
from dataclasses import dataclass

from inference.worker.market_client import Claim, Demand


@dataclass(frozen=True)
class Plan:
    """`drop`: held, but not claimed any more; `give_back`: claimed, but not usable here; `fetch`: claimed, not held.

    `free_bytes`: what remains of the budget when all that is done.
    """

    drop: tuple[Claim, ...]
    give_back: tuple[Claim, ...]
    fetch: tuple[Claim, ...]
    free_bytes: int


def plan_claims(held: Collection[Claim], claimed: Collection[Claim], budget_bytes: int) -> Plan:
    """Decide, given the server's list of this node's claims.

    Slices of one build only are kept: that of the claims held, or else that of most claimed bytes (the smaller name
    where equal). Claims above the budget are given back, the newest first, because those are not served yet.
    """
    build = _build_of(held, claimed)
    usable: list[Claim] = []
    give_back: list[Claim] = []
    used_bytes = 0
    for claim in sorted(claimed, key=lambda claim: (claim not in held, claim.claim_id)):
        if claim.build == build and used_bytes + claim.size_bytes <= budget_bytes:
            usable.append(claim)
            used_bytes += claim.size_bytes
        else:
            give_back.append(claim)
    drop = tuple(claim for claim in held if claim not in usable)
    fetch = tuple(claim for claim in usable if claim not in held)
    return Plan(drop, tuple(give_back), fetch, budget_bytes - used_bytes)


def is_needed_elsewhere(held: Collection[Claim], demand: Demand) -> bool:
    """Whether a stage should give up what others hold as well, for units that nobody holds: without them there is no
    ring at all."""
    is_spare = bool(held) and all((claim.replicas or 0) > 1 for claim in held)
    return is_spare and any(offer.replicas == 0 for offer in demand.ranges)


def _build_of(held: Collection[Claim], claimed: Collection[Claim]) -> str:
    still_held = [claim for claim in held if claim in claimed]
    sizes: dict[str, int] = {}
    for claim in still_held or claimed:
        sizes[claim.build] = sizes.get(claim.build, 0) + claim.size_bytes
    return min(sizes, key=lambda build: (-sizes[build], build), default="")
