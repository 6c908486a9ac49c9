"""The market in Django's admin: everything can be searched, nothing can be changed in place."""

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest

from market.models import Balance, Build, Claim, CreditedRows, CurrentPolicy, Event, Layer, Node, NodeProfile, Posting

if TYPE_CHECKING:
    Base = admin.ModelAdmin[Any]
else:
    # Generic for type checkers only.
    Base = admin.ModelAdmin


class ReadOnlyAdmin(Base):
    """Changes happen through commands, which append events."""

    # No join and no count of a large table on every page.
    show_full_result_count = False
    list_per_page = 100

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


@admin.register(Event)
class EventAdmin(ReadOnlyAdmin):
    list_display = ("position", "recorded_at", "name", "stream", "version")
    list_filter = ("name",)
    search_fields = ("=stream", "stream__startswith", "=idempotency_key")
    ordering = ("-position",)


@admin.register(Node)
class NodeAdmin(ReadOnlyAdmin):
    list_display = ("node_id", "kernel_class", "suspended_reason", "registered_at")
    search_fields = ("=node_id", "kernel_class")
    exclude = ("token_sha256",)
    ordering = ("-registered_at",)


@admin.register(NodeProfile)
class NodeProfileAdmin(ReadOnlyAdmin):
    list_display = ("node_id", "name")
    search_fields = ("=node_id", "name")


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
