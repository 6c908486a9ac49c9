"""The payout pages. Reading needs staff; every act needs its permission, a reason, and is one command of the market."""

from collections.abc import Callable
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from frontend.operator.access import operator_page, who
from frontend.payouts import figures
from frontend.payouts.audit_log import ACTS, acts
from market import commands
from market import rows as r
from market.admin_money import APPROVE, DRAFT, DraftForm, SettlementForm
from market.commands.nodes import REASON_LIMIT
from market.commands.payouts import batch_key, payments
from market.errors import MarketError
from market.models import PayoutBatch, PayoutItem
from market.payout_providers import CsvProvider, payments_csv, provider_named
from market.settlements import import_settlement

STEPS = (r.DRAFTED, r.APPROVED, r.SENDING, r.SENT, r.CLOSED)


def may(request: HttpRequest, permission: str) -> bool:
    return bool(request.user.has_perm(f"market.{permission}"))


@operator_page
@require_safe
def payouts(request: HttpRequest) -> HttpResponse:
    return _overview(request)


def _overview(request: HttpRequest, *, status: int = 200, **context: Any) -> HttpResponse:
    shown = {
        "batches": figures.batches(),
        "may_draft": may(request, DRAFT),
        "settlement": SettlementForm(),
        "failed": PayoutItem.objects.filter(state__in=(r.FAILED, r.RETURNED)).count(),
        **context,
    }
    return render(request, "frontend/payouts/index.html", shown, status=status)


@operator_page
@require_http_methods(["GET", "HEAD", "POST"])
def draft(request: HttpRequest) -> HttpResponse:
    """GET: the form, and with its values a preview. POST: the same values become a batch."""
    if not may(request, DRAFT):
        return _forbidden(request, DRAFT)
    asked = request.POST if request.method == "POST" else request.GET
    form = DraftForm(asked) if "minimum_microcredits" in asked else DraftForm()
    if request.method == "POST" and form.is_valid():
        values = {**form.cleaned_data, "cutoff": form.cleaned_data["cutoff"] or None}
        try:
            return redirect("payout", commands.draft_payout(by=who(request), **values))
        except MarketError as refusal:
            form.add_error(None, str(refusal))
    shown = {"form": form, "preview": _preview(form)}
    return render(request, "frontend/payouts/draft.html", shown, status=400 if request.method == "POST" else 200)


def _preview(form: DraftForm) -> figures.Preview | None:
    """None until minimum, reserve and cut-off are right; key and reason are not needed to look."""
    if not form.is_bound:
        return None
    form.full_clean()
    if {"minimum_microcredits", "reserve_percent", "cutoff"} & form.errors.keys():
        return None
    values = form.cleaned_data
    return figures.preview(
        values["cutoff"] or timezone.now(), values["minimum_microcredits"], values["reserve_percent"]
    )


def batch_or_404(batch_id: int) -> PayoutBatch:
    found = PayoutBatch.objects.filter(batch_id=batch_id).first()
    if found is None:
        raise Http404
    return found


@operator_page
@require_safe
def payout(request: HttpRequest, batch_id: int) -> HttpResponse:
    return _batch_page(request, batch_id)


def _batch_page(request: HttpRequest, batch_id: int, *, status: int = 200, **context: Any) -> HttpResponse:
    batch = batch_or_404(batch_id)
    is_drafter = batch.drafted_by.casefold() == who(request).casefold()
    items = PayoutItem.objects.filter(batch_id=batch_id).order_by("item_id")
    shown = {
        "batch": batch,
        "steps": STEPS,
        "items": figures.item_lines(items),
        "differences": figures.batch_differences(batch),
        "last": figures.last_batch(before=batch_id),
        "may_draft": may(request, DRAFT),
        "may_approve": may(request, APPROVE) and not is_drafter,
        "is_drafter": is_drafter,
        "offers": _offers(batch),
        "reason_limit": REASON_LIMIT,
        **context,
    }
    return render(request, "frontend/payouts/batch.html", shown, status=status)


def _offers(batch: PayoutBatch) -> set[str]:
    """The acts that make sense in this state."""
    offered = {
        "approve": batch.state == r.DRAFTED,
        "send": batch.state in (r.APPROVED, r.SENDING),
        "cancel": batch.state in r.CANCELLABLE_STATES,
    }
    return {act for act, is_offered in offered.items() if is_offered}


def _approve(batch_id: int, by: str, reason: str) -> str:
    commands.approve_payout(batch_id, by=by, reason=reason)
    return _("Approved.")


def _send(batch_id: int, by: str, reason: str) -> str:
    provider = provider_named(CsvProvider.name, settings.VAR_DIR / "payouts")
    reference = commands.send_payout(batch_id, provider, by=by, reason=reason)
    return _("Handed to the provider: %(reference)s") % {"reference": reference}


def _cancel(batch_id: int, by: str, reason: str) -> str:
    commands.cancel_payout(batch_id, by=by, reason=reason)
    return _("Cancelled; the money is available again.")


BATCH_ACTS: dict[str, tuple[str, Callable[[int, str, str], str]]] = {
    "approve": (APPROVE, _approve),
    "send": (DRAFT, _send),
    "cancel": (DRAFT, _cancel),
}


@operator_page
@require_POST
def act(request: HttpRequest, batch_id: int) -> HttpResponse:
    """Approves, sends or cancels, with the reason of the form."""
    batch_or_404(batch_id)
    permission, run = BATCH_ACTS.get(request.POST.get("act", ""), ("", _cancel))
    if not permission:
        raise Http404
    if not may(request, permission):
        return _forbidden(request, permission)
    reason = request.POST.get("reason", "")
    try:
        said = run(batch_id, who(request), reason)
    except MarketError as refusal:
        return _batch_page(request, batch_id, status=refusal.status, problem=str(refusal), reason=reason)
    messages.success(request, said)
    return redirect("payout", batch_id)


@operator_page
@require_safe
def export(request: HttpRequest, batch_id: int) -> HttpResponse:
    """The payments of a batch as CSV, with payees."""
    if not may(request, DRAFT):
        return _forbidden(request, DRAFT)
    batch_or_404(batch_id)
    answer = HttpResponse(payments_csv(payments(batch_id)), content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="{batch_key(batch_id)}.csv"'
    return answer


@operator_page
@require_POST
def settle(request: HttpRequest) -> HttpResponse:
    """Imports what the provider says of the items; lines that contradict the books are shown and change nothing."""
    if not may(request, DRAFT):
        return _forbidden(request, DRAFT)
    form = SettlementForm(request.POST, request.FILES)
    if not form.is_valid():
        return _overview(request, status=400, problem=_first_error(form))
    try:
        report = import_settlement(form.cleaned_data["file"], by=who(request))
    except MarketError as refusal:
        return _overview(request, status=refusal.status, problem=str(refusal))
    return _overview(request, report=report)


def _first_error(form: forms.Form) -> str:
    return str(next(iter(form.errors.values()))[0])


@operator_page
@require_safe
def failed(request: HttpRequest) -> HttpResponse:
    return render(request, "frontend/payouts/failed.html", {"items": figures.failed_items()})


@operator_page
@require_safe
def audit(request: HttpRequest) -> HttpResponse:
    asked = {name: request.GET.get(name, "").strip()[:200] for name in ("words", "name", "by")}
    before = request.GET.get("before", "")
    found = acts(**asked, before=int(before) if before.isdecimal() and len(before) < 19 else None)
    return render(request, "frontend/payouts/audit.html", {"page": found, "kinds": ACTS, **asked})


def _forbidden(request: HttpRequest, permission: str) -> HttpResponse:
    return render(request, "frontend/operator/forbidden.html", {"needs": f"market.{permission}"}, status=403)
