"""`/worker`: a browser tab lends experts. The page says what is wanted and what it pays; its script does the rest."""

from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from frontend import figures
from frontend.security import page
from inference.stats import snapshot
from market import offers
from market.commands.nodes import NAME_LIMIT
from market.coverage import CoverageSummary
from market.queries import NodeView

# Whoever has not registered yet: asks what a new device would be offered.
VISITOR = NodeView("", "", False)


@dataclass(frozen=True)
class Wanted:
    """A model on offer, how much of it is held, and for each budget what its best range may earn per hour."""

    name: str
    coverage: CoverageSummary
    presets: tuple[dict[str, int], ...]


@require_safe
@never_cache
@page
def worker(request: HttpRequest) -> HttpResponse:
    wanted = what_is_wanted()
    shown = {"wanted": wanted, "presets": wanted.presets if wanted else (), "name_limit": NAME_LIMIT}
    return render(request, "frontend/worker.html", shown)


def what_is_wanted() -> Wanted | None:
    """The shown build in the market's words; None while nothing is on offer."""
    builds = figures.shown_builds(snapshot())
    if not builds:
        return None
    build, presets, coverage = builds[0], [], None
    for preset in figures.budget_presets():
        found = offers.offers_for(VISITOR, preset.size_bytes, build.fingerprint)
        coverage = found.builds[0].coverage
        pays = max((offer.rate_microcredits_per_hour for offer in found.offers), default=0)
        presets.append({"experts": preset.experts, "size_bytes": preset.size_bytes, "pays": pays})
    return None if coverage is None else Wanted(build.name, coverage, tuple(presets))
