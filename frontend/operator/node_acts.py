"""What an operator may do to a device: message, pause, drain, ban, forgive. Every act asks for a reason.

An act is a command of the market, which appends an event that names the operator.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods

from frontend.operator.access import operator_act, who
from market import commands, queries
from market.commands.nodes import REASON_LIMIT
from market.errors import MarketError
from market.models import Forfeit


class ReasonForm(forms.Form):
    reason = forms.CharField(max_length=REASON_LIMIT, label=gettext_lazy("Reason"))


class MessageForm(forms.Form):
    reason = forms.CharField(max_length=REASON_LIMIT, label=gettext_lazy("Message"), widget=forms.Textarea)


class DrainForm(ReasonForm):
    minutes = forms.IntegerField(
        min_value=0, max_value=7 * 24 * 60, initial=10, label=gettext_lazy("Minutes until it gives everything back")
    )


class ForgiveForm(ReasonForm):
    restore = forms.BooleanField(required=False, initial=True, label=gettext_lazy("Also give back what was voided"))


@dataclass(frozen=True)
class Act:
    """run(node, operator, the form's values) -> what to tell; raises MarketError. offered: whether it makes sense."""

    name: str
    label: Promise
    what: Promise
    form: type[forms.Form]
    run: Callable[[str, str, dict[str, Any]], str]
    offered: Callable[[queries.NodeView], bool]
    danger: bool = False


def _message(node_id: str, by: str, values: dict[str, Any]) -> str:
    commands.message_node(node_id, values["reason"], by=by)
    return _("The message was sent.")


def _pause(node_id: str, by: str, values: dict[str, Any]) -> str:
    commands.suspend_node(node_id, reason=values["reason"], by=by)
    return _("The device is paused.")


def _drain(node_id: str, by: str, values: dict[str, Any]) -> str:
    leaves_at = timezone.now() + timedelta(minutes=values["minutes"])
    commands.plan_leave(node_id, leaves_at, by=by, reason=values["reason"])
    return _("The device claims nothing new and gives everything back in time.")


def _ban(node_id: str, by: str, values: dict[str, Any]) -> str:
    voided = commands.quarantine_node(node_id, reason=values["reason"], by=by)
    return _("The device is banned; %(amount)s credits were voided.") % {"amount": voided / 1e6}


def _forgive(node_id: str, by: str, values: dict[str, Any]) -> str:
    view = queries.node(node_id)
    commands.reinstate_node(node_id, by=by, reason=values["reason"])
    if view is not None and view.leaves_at is not None:
        commands.cancel_leave(node_id)
    restored = 0
    if values["restore"]:
        for forfeit in Forfeit.objects.filter(node_id=node_id, restored_at__isnull=True):
            restored += commands.restore_earnings(forfeit.position, by=by, reason=values["reason"])
    return _("The device may claim again; %(amount)s credits were given back.") % {"amount": restored / 1e6}


_ACTS = (
    Act(
        "message",
        gettext_lazy("Message"),
        gettext_lazy("A few words that the owner sees. They are stored for ever: no names, no addresses."),
        MessageForm,
        _message,
        lambda view: not view.erased,
    ),
    Act(
        "pause",
        gettext_lazy("Pause"),
        gettext_lazy("Its claims end and it gets no new ones until you forgive it. What it earned stays."),
        ReasonForm,
        _pause,
        lambda view: not view.suspended and not view.erased,
    ),
    Act(
        "drain",
        gettext_lazy("Drain"),
        gettext_lazy("It claims nothing new and gives everything back at a set time: others can take over first."),
        DrainForm,
        _drain,
        lambda view: not view.suspended and view.leaves_at is None and not view.erased,
    ),
    Act(
        "ban",
        gettext_lazy("Ban"),
        gettext_lazy("As a pause; what it has on hold is voided and its trust is gone."),
        ReasonForm,
        _ban,
        lambda view: not view.quarantined and not view.erased,
        danger=True,
    ),
    Act(
        "forgive",
        gettext_lazy("Forgive"),
        gettext_lazy("Ends a pause, a drain or a ban."),
        ForgiveForm,
        _forgive,
        lambda view: (view.suspended or view.leaves_at is not None) and not view.erased,
    ),
)
ACTS = {act.name: act for act in _ACTS}


@operator_act
@require_http_methods(["GET", "HEAD", "POST"])
def act(request: HttpRequest, node_id: str, name: str) -> HttpResponse:
    """GET: the form. POST: the act, then the device's page; what the market refuses is shown in the form."""
    view = queries.node(node_id)
    if name not in ACTS or view is None:
        raise Http404
    chosen = ACTS[name]
    form = chosen.form(request.POST) if request.method == "POST" else chosen.form()
    if form.is_valid():
        try:
            told = chosen.run(node_id, who(request), form.cleaned_data)
        except MarketError as refusal:
            form.add_error(None, str(refusal))
        else:
            messages.success(request, told)
            return redirect("operator-node", node_id)
    status = 400 if form.errors else 200
    return render(request, "frontend/operator/act.html", {"act": chosen, "form": form, "view": view}, status=status)
