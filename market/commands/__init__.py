"""Everything that changes the market. Each command is one transaction: it reads, decides, appends events, projects.

Commands raise `market.errors` only. `now` is for tests and timers; left out, it is the present.
"""

from market.claim_rules import RangeWish
from market.commands.builds import change_policy, publish_build
from market.commands.claims import claim_best, claim_ranges, expire_leases, release_claim
from market.commands.nodes import register_node, reinstate_node, rotate_token, suspend_node
from market.commands.replicas import lose_replica, record_delivery, verify_replica
from market.commands.work import CreditResult, credit_work, observe_demand

__all__ = [
    "CreditResult",
    "RangeWish",
    "change_policy",
    "claim_best",
    "claim_ranges",
    "credit_work",
    "expire_leases",
    "lose_replica",
    "observe_demand",
    "publish_build",
    "record_delivery",
    "register_node",
    "reinstate_node",
    "release_claim",
    "rotate_token",
    "suspend_node",
    "verify_replica",
]
