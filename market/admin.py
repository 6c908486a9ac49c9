"""The market in Django's admin: everything can be searched, nothing can be changed in place."""

import uuid
from typing import Any

from django import forms
from django.contrib import admin

# Registers the pages of money.
from market import admin_money as admin_money
from market import commands
from market.admin_acts import Act, ActingAdmin, ReadOnlyAdmin, ReasonForm
from market.models import (
    Balance,
    Build,
    Claim,
    CreditedRows,
    CurrentPolicy,
    Event,
    Layer,
    Node,
    NodeProfile,
    OwnerProfile,
    Posting,
)

OPERATE = "operate_nodes"


class AdjustForm(ReasonForm):
    """The hidden key makes a form that is sent twice adjust once."""

    amount_microcredits = forms.IntegerField(help_text="Plus gives, minus takes; never below zero.")
    key = forms.CharField(initial=lambda: str(uuid.uuid4()), widget=forms.HiddenInput)


def _suspend(key: str, by: str, values: dict[str, Any]) -> str:
    commands.suspend_node(key, by=by, reason=values["reason"])
    return "suspended"


def _reinstate(key: str, by: str, values: dict[str, Any]) -> str:
    commands.reinstate_node(key, by=by, reason=values["reason"])
    return "reinstated"


def _quarantine(key: str, by: str, values: dict[str, Any]) -> str:
    return f"{commands.quarantine_node(key, by=by, reason=values['reason'])} microcredits voided"


def _forfeit(key: str, by: str, values: dict[str, Any]) -> str:
    return f"{commands.forfeit_pending(key, by=by, reason=values['reason'])} microcredits voided"


def _adjust(key: str, by: str, values: dict[str, Any]) -> str:
    return f"adjusted by the event at position {commands.adjust_balance(key, by=by, **values)}"


def _revoke(key: str, by: str, values: dict[str, Any]) -> str:
    commands.revoke_token(key, by=by, reason=values["reason"])
    return "the token opens nothing any more"


def _erase(key: str, by: str, values: dict[str, Any]) -> str:
    commands.erase_node(key, by=by, reason=values["reason"])
    return "erased; the books stay"


def _erase_owner(key: str, by: str, values: dict[str, Any]) -> str:
    return f"erased with {len(commands.erase_owner(key, by=by, reason=values['reason']))} devices"


@admin.register(Event)
class EventAdmin(ReadOnlyAdmin):
    list_display = ("position", "recorded_at", "name", "stream", "version")
    list_filter = ("name",)
    search_fields = ("=stream", "stream__startswith", "=idempotency_key")
    ordering = ("-position",)


@admin.register(Node)
class NodeAdmin(ActingAdmin):
    list_display = (
        "node_id", "kernel_class", "owner_id", "trust", "suspended_reason", "quarantined", "leaves_at", "registered_at",
    )  # fmt: skip
    list_filter = ("quarantined",)
    search_fields = ("=node_id", "kernel_class", "=owner_id", "suspended_reason")
    exclude = ("token_sha256",)
    ordering = ("-registered_at",)
    acts = (
        Act("suspend", "Suspend", OPERATE, _suspend, offered=lambda node: not node.suspended_reason),
        Act("reinstate", "Reinstate", OPERATE, _reinstate, offered=lambda node: bool(node.suspended_reason)),
        Act("quarantine", "Quarantine", OPERATE, _quarantine, offered=lambda node: not node.quarantined),
        Act("forfeit", "Void what is on hold", OPERATE, _forfeit),
        Act("adjust", "Adjust the balance", OPERATE, _adjust, AdjustForm),
        Act("revoke", "Revoke the token", OPERATE, _revoke),
        Act("erase", "Erase", OPERATE, _erase, offered=lambda node: node.erased_at is None),
    )


@admin.register(NodeProfile)
class NodeProfileAdmin(ReadOnlyAdmin):
    list_display = ("node_id", "name")
    search_fields = ("=node_id", "name")


@admin.register(OwnerProfile)
class OwnerProfileAdmin(ActingAdmin):
    list_display = ("owner_id", "name")
    search_fields = ("=owner_id", "name")
    acts = (Act("erase", "Erase this person", OPERATE, _erase_owner),)

    def _page(self, key: str) -> str:
        """An erased person has no page to go back to."""
        return super()._page(key if OwnerProfile.objects.filter(owner_id=key).exists() else "")


@admin.register(Claim)
class ClaimAdmin(ReadOnlyAdmin):
    list_display = (
        "claim_id",
        "node_id",
        "build",
        "layer",
        "first",
        "last",
        "state",
        "granted_at",
        "earned_microcredits",
    )
    list_filter = ("state",)
    search_fields = ("=claim_id", "=node_id", "=build")
    ordering = ("-claim_id",)


@admin.register(Posting)
class PostingAdmin(ReadOnlyAdmin):
    list_display = ("event_position", "line", "account", "amount_microcredits")
    search_fields = ("account__startswith", "=event_position")
    ordering = ("-event_position", "line")


@admin.register(Balance)
class BalanceAdmin(ReadOnlyAdmin):
    list_display = ("account", "balance_microcredits")
    search_fields = ("account__startswith",)


@admin.register(Build)
class BuildAdmin(ReadOnlyAdmin):
    list_display = ("fingerprint", "name", "architecture", "published_at")


@admin.register(Layer)
class LayerAdmin(ReadOnlyAdmin):
    list_display = ("build", "layer", "expert_bytes", "expert_types", "reserved_microcredits_per_hour")
    exclude = ("replicas",)
    ordering = ("build", "layer")


@admin.register(CreditedRows)
class CreditedRowsAdmin(ReadOnlyAdmin):
    list_display = ("build", "node_id", "layer", "rows", "amount_microcredits")
    search_fields = ("=node_id", "=build")


@admin.register(CurrentPolicy)
class CurrentPolicyAdmin(ReadOnlyAdmin):
    list_display = ("target_replicas", "maximum_replicas", "budget_microcredits_per_hour", "changed_at")
