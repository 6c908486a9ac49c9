"""`/worker`: a browser tab lends experts. The page says what is wanted and what it pays; its script does the rest.

Beside it what makes it a page that can be installed: the service worker, and the page without a network.
"""

from dataclasses import dataclass
from pathlib import Path

from django.contrib.staticfiles import finders
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from frontend import authority, figures
from frontend.security import isolated, page
from frontend.worker_texts import language
from inference.stats import snapshot
from market import enrolment, offers
from market.builds import BuildDescription
from market.commands.nodes import NAME_LIMIT
from market.coverage import CoverageSummary
from market.queries import NodeView

# Whoever has not registered yet: asks what a new device would be offered.
VISITOR = NodeView("", "", False)
# What people lend: sizes as a phone's settings show them. A tab has at most 4 GB, and other things to do with them.
BUDGETS_MEGABYTES = (1, 2, 5, 10, 21, 42, 85, 170, 340, 680, 1000, 2000)


@dataclass(frozen=True)
class Preset:
    """A budget, how many experts it holds whatever their layer, what they really take, and what the best range of that
    size may earn per hour."""

    budget_bytes: int
    experts: int
    size_bytes: int
    pays: int


@dataclass(frozen=True)
class Wanted:
    """A model on offer, how much of it is held, and what devices may lend."""

    name: str
    coverage: CoverageSummary
    presets: tuple[Preset, ...]


@require_safe
@never_cache
@isolated
@page
def worker(request: HttpRequest) -> HttpResponse:
    wanted = what_is_wanted()
    shown = {
        "wanted": wanted,
        "presets": [vars(preset) for preset in wanted.presets] if wanted else [],
        "language": language(),
        "name_limit": NAME_LIMIT,
        "registration": enrolment.mode().value,
        "invite_limit": enrolment.CODE_LENGTH_LIMIT,
        "authority": authority.offered(),
    }
    return render(request, "frontend/worker.html", shown)


@require_safe
@isolated
@page
def offline(request: HttpRequest) -> HttpResponse:
    """What an installed page shows without a network: the same for everybody who reads its language."""
    return render(request, "frontend/offline.html")


@require_safe
@never_cache
def shell(request: HttpRequest) -> HttpResponse:
    """The service worker: a service worker may only rule over what lies below its own address, so not in /static/."""
    path = finders.find("worker/shell.js")
    assert isinstance(path, str)
    return HttpResponse(Path(path).read_bytes(), content_type="text/javascript; charset=utf-8")


@require_safe
@never_cache
def authority_certificate(request: HttpRequest) -> HttpResponse:
    """The certificate that a device has to trust for `up --lan --tls`; it is public, its key is not."""
    if authority.offered() is None:
        raise Http404("this server has no certificate authority of its own")
    # Phones offer to install this type.
    response = HttpResponse(authority.path().read_bytes(), content_type="application/x-x509-ca-cert")
    response["Content-Disposition"] = 'attachment; filename="expertswarm-ca.crt"'
    return response


def what_is_wanted() -> Wanted | None:
    """The shown build in the market's words; None while nothing is on offer."""
    builds = figures.shown_builds(snapshot())
    if not builds:
        return None
    build, presets, coverage = builds[0], [], None
    for budget_bytes, experts, size_bytes in budgets(build):
        found = offers.offers_for(VISITOR, budget_bytes, build.fingerprint)
        coverage = found.builds[0].coverage
        pays = max((offer.rate_microcredits_per_hour for offer in found.offers), default=0)
        presets.append(Preset(budget_bytes, experts, size_bytes, pays))
    return None if coverage is None else Wanted(build.name, coverage, tuple(presets))


def budgets(build: BuildDescription) -> list[tuple[int, int, int]]:
    """(budget, experts that fit, their bytes): one expert, then every size that holds more of them, up to all."""
    largest, total = max(build.expert_bytes), build.experts_per_layer * len(build.layers)
    found = [(largest, 1, largest)]
    for megabytes in BUDGETS_MEGABYTES:
        experts = min(total, megabytes * 10**6 // largest)
        if experts > found[-1][1]:
            found.append((megabytes * 10**6, experts, experts * largest))
    return found
