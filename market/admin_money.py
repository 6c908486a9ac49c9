"""Admin pages of money: payouts from draft to settlement, holds, forfeits, incidents."""

from typing import Any, ClassVar

from django import forms
from django.conf import settings
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone

from market import commands
from market import rows as r
from market.admin_acts import Act, ActingAdmin, ReadOnlyAdmin, ReasonForm
from market.commands.payouts import batch_key, payments
from market.models import Forfeit, Hold, Incident, PayoutBatch, PayoutItem
from market.payout_providers import CsvProvider, payments_csv, provider_named
from market.settlements import SIZE_LIMIT_BYTES, import_settlement

DRAFT, APPROVE, OPERATE = "draft_payouts", "approve_payouts", "operate_nodes"


class DraftForm(ReasonForm):
    key = forms.CharField(max_length=80, initial=lambda: f"{timezone.now():%Y-%m}", help_text="A key drafts once.")
    minimum_microcredits = forms.IntegerField(
        min_value=1, initial=lambda: settings.PAYOUT_MINIMUM_MICROCREDITS, label="Minimum (microcredits)"
    )
    reserve_percent = forms.IntegerField(
        min_value=0, max_value=99, initial=lambda: settings.PAYOUT_RESERVE_PERCENT, label="Reserve (percent)"
    )
    cutoff = forms.DateTimeField(required=False, help_text="UTC; what was credited later stays out. Empty: now.")


class SettlementForm(ReasonForm):
    reason = forms.CharField(required=False, widget=forms.HiddenInput)
    file = forms.FileField(help_text="CSV: item_id, status (settled, failed, returned), reference, reason.")

    def clean_file(self) -> str:
        """The text of the file."""
        uploaded = self.cleaned_data["file"]
        if uploaded.size > SIZE_LIMIT_BYTES:
            raise forms.ValidationError(f"at most {SIZE_LIMIT_BYTES} bytes")
        try:
            return str(uploaded.read().decode("utf-8"))
        except UnicodeDecodeError as problem:
            raise forms.ValidationError("the file is no UTF-8 text") from problem


class IncidentForm(ReasonForm):
    starts_at = forms.DateTimeField(help_text="UTC")
    ends_at = forms.DateTimeField(help_text="UTC; may lie ahead, while the incident lasts.")


def _draft(_key: str, by: str, values: dict[str, Any]) -> str:
    return f"batch {commands.draft_payout(by=by, **{**values, 'cutoff': values['cutoff'] or None})} is drafted"


def _approve(key: str, by: str, values: dict[str, Any]) -> str:
    commands.approve_payout(int(key), by=by, reason=values["reason"])
    return "approved"


def _send(key: str, by: str, values: dict[str, Any]) -> str:
    provider = provider_named(CsvProvider.name, settings.VAR_DIR / "payouts")
    return f"sent: {commands.send_payout(int(key), provider, by=by, reason=values['reason'])}"


def _cancel(key: str, by: str, values: dict[str, Any]) -> str:
    commands.cancel_payout(int(key), by=by, reason=values["reason"])
    return "cancelled, the money is available again"


def _settle(_key: str, by: str, values: dict[str, Any]) -> str:
    report = import_settlement(values["file"], by=by)
    refused = "; ".join(report.problems[:10])
    return f"{report.applied} items changed, {report.repeated} were known, {len(report.problems)} refused {refused}"


def _restore(key: str, by: str, values: dict[str, Any]) -> str:
    return f"{commands.restore_earnings(int(key), by=by, reason=values['reason'])} microcredits are on hold again"


def _declare(_key: str, by: str, values: dict[str, Any]) -> str:
    return f"incident {commands.declare_incident(by=by, **values)} is declared"


def _batch_links(batch_id: str) -> list[tuple[str, str]]:
    items = f"{reverse('admin:market_payoutitem_changelist')}?q={batch_id}"
    return [("Items", items), ("Payments as CSV", reverse("admin:market_payoutbatch_export", args=[batch_id]))]


@admin.register(PayoutBatch)
class PayoutBatchAdmin(ActingAdmin):
    list_display = (
        "batch_id", "state", "items", "open_items", "total_microcredits", "drafted_by", "approved_by", "reference",
    )  # fmt: skip
    list_filter = ("state",)
    search_fields = ("=batch_id", "drafted_by", "approved_by", "reference", "reason")
    ordering = ("-batch_id",)
    acts = (
        Act("approve", "Approve", APPROVE, _approve, offered=lambda batch: batch.state == r.DRAFTED),
        Act("send", "Send", DRAFT, _send, offered=lambda batch: batch.state in (r.APPROVED, r.SENDING)),
        Act("cancel", "Cancel", DRAFT, _cancel, offered=lambda batch: batch.state in r.CANCELLABLE_STATES),
    )
    list_acts = (
        Act("draft", "Draft a payout", DRAFT, _draft, DraftForm),
        Act("settle", "Import a settlement", DRAFT, _settle, SettlementForm),
    )

    def get_urls(self) -> list[URLPattern]:
        export = self.admin_site.admin_view(self.export_view)
        return [path("<int:batch_id>/export.csv", export, name="market_payoutbatch_export"), *super().get_urls()]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        links = _batch_links(object_id) if object_id.isascii() and object_id.isdecimal() else []
        return super().change_view(request, object_id, form_url, {**(extra_context or {}), "links": links})

    def export_view(self, request: HttpRequest, batch_id: int) -> HttpResponse:
        """The payments of a batch, with payees."""
        if not request.user.has_perm(f"market.{DRAFT}"):
            raise PermissionDenied
        answer = HttpResponse(payments_csv(payments(batch_id)), content_type="text/csv; charset=utf-8")
        answer["Content-Disposition"] = f'attachment; filename="{batch_key(batch_id)}.csv"'
        return answer


@admin.register(PayoutItem)
class PayoutItemAdmin(ReadOnlyAdmin):
    list_display = ("item_id", "batch_id", "node_id", "amount_microcredits", "state", "reference", "reason")
    list_filter = ("state",)
    search_fields = ("=item_id", "=batch_id", "=node_id", "reference")
    ordering = ("-item_id",)


@admin.register(Hold)
class HoldAdmin(ReadOnlyAdmin):
    list_display = (
        "node_id", "earned_until", "held_microcredits", "released_microcredits", "forfeited_microcredits",
    )  # fmt: skip
    search_fields = ("=node_id",)
    ordering = ("-earned_until",)


@admin.register(Forfeit)
class ForfeitAdmin(ActingAdmin):
    list_display = ("position", "node_id", "amount_microcredits", "by", "reason", "at", "restored_at")
    search_fields = ("=node_id", "reason")
    ordering = ("-position",)
    acts: ClassVar[tuple[Act, ...]] = (
        Act("restore", "Take back", OPERATE, _restore, offered=lambda forfeit: forfeit.restored_at is None),
    )


@admin.register(Incident)
class IncidentAdmin(ActingAdmin):
    list_display = ("incident_id", "starts_at", "ends_at", "by", "reason", "declared_at")
    search_fields = ("reason", "by")
    ordering = ("-incident_id",)
    list_acts: ClassVar[tuple[Act, ...]] = (Act("declare", "Declare an incident", OPERATE, _declare, IncidentForm),)
