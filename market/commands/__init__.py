"""Everything that changes the market. Each command is one transaction: it reads, decides, appends events, projects.

Commands raise `market.errors` only. `now` is for tests and timers; left out, it is the present.
"""

from market.claim_rules import RangeWish
from market.commands.audits import quarantine_node, record_audits
from market.commands.builds import change_policy, end_retired, publish_build, restore_build, retire_build
from market.commands.claims import claim_best, claim_ranges, expire_leases, release_claim
from market.commands.earnings import adjust_balance, forfeit_pending, release_earnings, restore_earnings
from market.commands.incidents import declare_incident
from market.commands.nodes import (
    cancel_leave,
    end_planned_leaves,
    link_node,
    message_node,
    plan_leave,
    register_node,
    reinstate_node,
    revoke_token,
    rotate_token,
    suspend_node,
)
from market.commands.owners import create_owner, erase_node, erase_owner, set_node_payee, set_payee
from market.commands.payouts import (
    approve_payout,
    cancel_payout,
    draft_payout,
    fail_item,
    return_item,
    send_payout,
    settle_item,
)
from market.commands.replicas import lose_gone, lose_replica, record_delivery, verify_replica
from market.commands.standby import credit_standby
from market.commands.work import CreditResult, credit_work, note_strain, observe_demand

__all__ = [
    "CreditResult",
    "RangeWish",
    "adjust_balance",
    "approve_payout",
    "cancel_leave",
    "cancel_payout",
    "change_policy",
    "claim_best",
    "claim_ranges",
    "create_owner",
    "credit_standby",
    "credit_work",
    "declare_incident",
    "draft_payout",
    "end_planned_leaves",
    "end_retired",
    "erase_node",
    "erase_owner",
    "expire_leases",
    "fail_item",
    "forfeit_pending",
    "link_node",
    "lose_gone",
    "lose_replica",
    "message_node",
    "note_strain",
    "observe_demand",
    "plan_leave",
    "publish_build",
    "quarantine_node",
    "record_audits",
    "record_delivery",
    "register_node",
    "reinstate_node",
    "release_claim",
    "release_earnings",
    "restore_build",
    "restore_earnings",
    "retire_build",
    "return_item",
    "revoke_token",
    "rotate_token",
    "send_payout",
    "set_node_payee",
    "set_payee",
    "settle_item",
    "suspend_node",
    "verify_replica",
]
