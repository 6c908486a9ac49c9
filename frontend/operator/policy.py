"""The policy: what is paid, how many replicas are wanted, and what another policy would change before it holds."""

from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods

from frontend.operator.access import OPERATE, operator_page, who
from market import commands, queries, snapshots
from market.commands.nodes import REASON_LIMIT, checked_reason
from market.errors import MarketError
from market.placement import BuildMarket
from market.policy import MICROCREDITS_PER_CREDIT, Policy
from market.pricing import priced_budget

CREDITS_LIMIT = 10**12


class PolicyForm(forms.Form):
    """Money in credits; the policy counts microcredits."""

    budget = forms.DecimalField(
        label=gettext_lazy("Budget per hour"), min_value=0, max_value=CREDITS_LIMIT, decimal_places=6,
        help_text=gettext_lazy("Credits. The caps of all claims together never exceed it."))  # fmt: skip
    ceiling = forms.DecimalField(
        label=gettext_lazy("Most for 10^12 operations"), min_value=Decimal("0.000001"), max_value=CREDITS_LIMIT,
        decimal_places=6, help_text=gettext_lazy("Credits. Holds where nobody asks for an expert."))  # fmt: skip
    target_replicas = forms.IntegerField(
        label=gettext_lazy("Target replicas"), min_value=1, max_value=64,
        help_text=gettext_lazy("Copies wanted of every expert; more are worth little."))  # fmt: skip
    maximum_replicas = forms.IntegerField(
        label=gettext_lazy("Most replicas"), min_value=1, max_value=64,
        help_text=gettext_lazy("Beyond it no claim is granted."))  # fmt: skip
    target_bytes_percent = forms.IntegerField(
        label=gettext_lazy("Targets by demand (%)"), min_value=0, max_value=100,
        help_text=gettext_lazy("Hot experts get a higher target while all targets fit into this share of what devices "
                               "hold; 0: all have the same."))  # fmt: skip
    standby_percent = forms.IntegerField(
        label=gettext_lazy("Stand-by pay (%)"), min_value=0, max_value=100,
        help_text=gettext_lazy("Share of its cap that a verified replica earns for being there."))  # fmt: skip

    def policy(self) -> Policy:
        values = self.cleaned_data
        return Policy(
            budget_microcredits_per_hour=int(values["budget"] * MICROCREDITS_PER_CREDIT),
            price_ceiling_microcredits_per_teraflop=int(values["ceiling"] * MICROCREDITS_PER_CREDIT),
            target_replicas=values["target_replicas"],
            maximum_replicas=values["maximum_replicas"],
            target_bytes_percent=values["target_bytes_percent"],
            standby_percent=values["standby_percent"],
        )

    def clean(self) -> dict[str, Any]:
        values = super().clean() or self.cleaned_data
        if not self.errors and (problem := self.policy().problem()):
            raise forms.ValidationError(problem)
        return values


@dataclass(frozen=True)
class Effect:
    """A figure under the policy in force and under the other one."""

    label: Promise
    now: float
    then: float

    @property
    def changed(self) -> bool:
        return self.now != self.then


@dataclass(frozen=True)
class BuildEffects:
    name: str
    effects: tuple[Effect, ...]


@operator_page
@require_http_methods(["GET", "HEAD", "POST"])
def page(request: HttpRequest) -> HttpResponse:
    """GET: the form, with ?budget=... also the effects. POST: the change, with a reason."""
    policy = queries.policy()
    given = request.POST if request.method == "POST" else request.GET
    form = PolicyForm(given) if "budget" in given else PolicyForm(initial=initial(policy))
    context: dict[str, Any] = {"policy": policy, "form": form, "reason_limit": REASON_LIMIT,
                               "may_change": request.user.has_perm(OPERATE)}  # fmt: skip
    if form.is_bound and form.is_valid():
        if request.method == "POST":
            if not request.user.has_perm(OPERATE):
                return render(request, "frontend/operator/forbidden.html", {"needs": OPERATE}, status=403)
            try:
                return _change(request, form.policy())
            except MarketError as refusal:
                form.add_error(None, str(refusal))
        context |= {"proposed": form.policy(), "effects": effects(policy, form.policy())}
    status = 400 if form.errors else 200
    return render(request, "frontend/operator/policy.html", context, status=status)


def _change(request: HttpRequest, policy: Policy) -> HttpResponse:
    """Raises MarketError."""
    commands.change_policy(policy, by=who(request), reason=checked_reason(request.POST.get("reason", "")))
    messages.success(request, _("The policy holds from now on. Live claims keep their rate and cap."))
    return redirect("operator-policy")


def initial(policy: Policy) -> dict[str, Any]:
    """The form's values of a policy."""
    values = asdict(policy)
    values["budget"] = _credits(values.pop("budget_microcredits_per_hour"))
    values["ceiling"] = _credits(values.pop("price_ceiling_microcredits_per_teraflop"))
    return values


def _credits(microcredits: int) -> str:
    text = f"{Decimal(microcredits) / MICROCREDITS_PER_CREDIT:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def effects(now: Policy, then: Policy) -> list[BuildEffects]:
    """What would be different at this moment, build by build."""
    found = []
    for build in queries.builds():
        market = snapshots.build_market(build.fingerprint, None, policy=now)
        share = market.budget_microcredits_per_hour / max(1, priced_budget(now.budget_microcredits_per_hour))
        budget = int(share * priced_budget(then.budget_microcredits_per_hour))
        other = replace(market, policy=then, budget_microcredits_per_hour=budget)
        before, after = figures(market), figures(other)
        lines = tuple(Effect(label, before[key], after[key]) for key, label in LABELS.items())
        found.append(BuildEffects(build.name, lines))
    return found


LABELS: dict[str, Promise] = {
    "wanted": gettext_lazy("Replicas wanted"),
    "missing": gettext_lazy("Replicas missing"),
    "missing_gigabytes": gettext_lazy("Memory missing (GB)"),
    "surplus": gettext_lazy("Replicas above the most that is allowed"),
    "price_least": gettext_lazy("Next replica, cheapest expert (credits/hour)"),
    "price_median": gettext_lazy("Next replica, median expert (credits/hour)"),
    "price_most": gettext_lazy("Next replica, dearest expert (credits/hour)"),
    "price_all": gettext_lazy("One more replica of everything (credits/hour)"),
}


def figures(market: BuildMarket) -> dict[str, float]:
    """Figures of a build under its market's policy; prices of experts that may still be claimed."""
    present, targets = market.present.astype(np.int64), market.targets.astype(np.int64)
    missing = np.maximum(targets - present, 0)
    sizes = np.array(market.build.expert_bytes, np.int64)[:, None]
    prices = market.prices()[market.replicas < market.policy.maximum_replicas] / MICROCREDITS_PER_CREDIT
    priced = prices if prices.size else np.zeros(1)
    return {
        "wanted": int(targets.sum()),
        "missing": int(missing.sum()),
        "missing_gigabytes": round(float((missing * sizes).sum()) / 1e9, 2),
        "surplus": int(np.maximum(market.replicas.astype(np.int64) - market.policy.maximum_replicas, 0).sum()),
        "price_least": float(priced.min()),
        "price_median": float(np.median(priced)),
        "price_most": float(priced.max()),
        "price_all": float(prices.sum()),
    }
