"""What needs a person now: coverage, audits, stores and queues, money, incidents. Each alert says what to do."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_safe

from frontend.operator.access import operator_page
from frontend.operator.heat_map import statuses
from inference import health
from inference import stats as server_stats
from inference.backbone_status import Status
from market import incidents, node_list, queries, snapshots
from market.policy import Policy

BUDGET_FULL_SHARE = 0.95
QUEUE_FULL_SHARE = 0.8
NODES_NAMED = 5

Level = Literal["bad", "warn"]


@dataclass(frozen=True)
class Alert:
    """what: the fact; advice: what to do about it; link: where."""

    level: Level
    title: str
    what: str
    advice: str
    link: str = ""


@dataclass(frozen=True)
class HealthLine:
    name: str
    ready: bool
    what: str


@operator_page
@require_safe
def page(request: HttpRequest) -> HttpResponse:
    return render(request, "frontend/operator/alerts.html", _context())


@operator_page
@require_safe
def live(request: HttpRequest) -> HttpResponse:
    """The lists alone, for htmx."""
    return render(request, "frontend/operator/_alerts.html", _context())


def _context() -> dict[str, object]:
    parts = [HealthLine(name, part.ready, _details(part)) for name, part in health.parts().items()]
    found = statuses()
    alerts = [*_health(parts), *_coverage(found), *_audits(found), *_queue(), *_money(queries.policy()), *_incidents()]
    alerts.sort(key=lambda alert: alert.level != "bad")
    return {"alerts": alerts, "parts": parts, "at": timezone.now()}


def _details(part: health.Part) -> str:
    """What a part says, with the ages of its canaries."""
    ages = part.details.get("canary_age_seconds", {})
    told = _("canary of %(queue)s: %(age)s s ago")
    words = [told % {"queue": queue, "age": age} for queue, age in ages.items() if age is not None]
    return "; ".join([part.what, *words])


def _health(parts: list[HealthLine]) -> Iterator[Alert]:
    advice = {
        "database": _("Look at the database server and DATABASE_URL."),
        "redis": _("Look at the Redis server and REDIS_URL."),
        "celery": _("Restart the workers and beat; their logs say why they stopped."),
        "backbone": _("Start a backbone worker, or look at its log."),
        "relay": _("Backbones cannot reach a relay: look at RELAY_ADDRESS and the web processes."),
    }
    for part in parts:
        if not part.ready:
            yield Alert("bad", _("Not ready: %(part)s") % {"part": part.name}, part.what, advice.get(part.name, ""))


def _coverage(found: list[Status]) -> Iterator[Alert]:
    policy = queries.policy()
    for build in server_stats.current_builds(found):
        live = queries.live_coverage(build.fingerprint)
        nobody = int((live == 0).sum())
        below = int(((live > 0) & (live < policy.target_replicas)).sum())
        link = reverse("operator") + f"?build={build.fingerprint}"
        if nobody:
            what = ngettext(
                "%(count)d of %(all)d experts of %(build)s is held by nobody: the backbone computes it.",
                "%(count)d of %(all)d experts of %(build)s are held by nobody: the backbone computes them.",
                nobody,
            ) % {"count": nobody, "all": live.size, "build": build.name}
            yield Alert("warn", _("Minimum replicas: 0"), what, _("Add devices, or raise the budget."), link)
        if below:
            what = ngettext(
                "%(count)d expert of %(build)s has fewer than the %(target)d replicas that the policy wants.",
                "%(count)d experts of %(build)s have fewer than the %(target)d replicas that the policy wants.",
                below,
            ) % {"count": below, "build": build.name, "target": policy.target_replicas}
            yield Alert("warn", _("Below the target"), what, _("Add devices, or lower the target."), link)


def _audits(found: list[Status]) -> Iterator[Alert]:
    banned = node_list.banned_names()
    if banned:
        names = ", ".join(banned[:NODES_NAMED])
        what = ngettext("%(count)d device is banned: %(names)s", "%(count)d devices are banned: %(names)s", len(banned))
        advice = _("Read the reasons; forgive those that were our fault.")
        link = reverse("operator-nodes") + "?state=banned"
        yield Alert("warn", _("Audit failures"), what % {"count": len(banned), "names": names}, advice, link)
    failed = sum(status.get("failed_decodes", 0) for status in found)
    if failed:
        what = ngettext("%(count)d decode failed.", "%(count)d decodes failed.", failed) % {"count": failed}
        yield Alert("bad", _("Backbone"), what, _("Look at the backbone's log."))


def _queue() -> Iterator[Alert]:
    queue = server_stats.snapshot()["queue"]
    open_jobs = queue.get("queued", 0) + queue.get("running", 0)
    if open_jobs >= QUEUE_FULL_SHARE * queue.get("limit", open_jobs + 1):
        what = _("%(open)d of %(limit)d answers are open.") % {"open": open_jobs, "limit": queue["limit"]}
        link = reverse("operator-requests")
        yield Alert("warn", _("The queue is nearly full"), what, _("Add a backbone, or expect 429 answers."), link)


def _money(policy: Policy) -> Iterator[Alert]:
    reserved, budget = snapshots.reserved_microcredits_per_hour(), policy.budget_microcredits_per_hour
    if budget and reserved >= BUDGET_FULL_SHARE * budget:
        what = _("%(percent)d%% of the hourly budget is reserved by claims.") % {"percent": 100 * reserved // budget}
        advice = _("New devices get nothing: raise the budget if you want them.")
        yield Alert("warn", _("The budget is used up"), what, advice, reverse("operator-policy"))


def _incidents() -> Iterator[Alert]:
    incident = incidents.incident_at(timezone.now())
    if incident is not None:
        what = _("Until %(end)s UTC nobody is punished: %(reason)s") % {
            "end": incident.ends_at.strftime("%Y-%m-%d %H:%M"),
            "reason": incident.reason,
        }
        yield Alert("warn", _("An incident is declared"), what, "")
