"""The first page of the operator: every expert of a build as a cell, by one measure at a time, and what is behind it.

The map is a canvas that heat_map.js draws from `cells`; the tables say the same to everybody else.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import redis
from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from frontend.operator import measures, stages
from frontend.operator.access import operator_page
from frontend.operator.measures import MEASURES, Measure, Measured
from frontend.stages import run_words
from inference import backbone_status
from inference import stats as server_stats
from inference.backbone_status import Status
from market import holders, queries
from market.builds import BuildDescription
from market.errors import UnknownBuild


@dataclass(frozen=True)
class Reading:
    """One measure of one expert; value None: nothing is known."""

    measure: Measure
    value: float | None


@operator_page
@require_safe
def page(request: HttpRequest) -> HttpResponse:
    builds = queries.builds()
    build, measure = chosen_build(request, builds), chosen_measure(request)
    context: dict[str, Any] = {"builds": builds, "measures": MEASURES.values(), "measure": measure, "build": build}
    if build is not None:
        found = statuses()
        figures = measures.layer_figures(build, Measured(build, found).grid(measure))
        context |= {"layers": figures, **_tiles(build), **_stages(build, measure, found)}
    return render(request, "frontend/operator/heat_map.html", context)


@operator_page
@require_safe
def tiles(request: HttpRequest) -> HttpResponse:
    """The figures above the map alone, for htmx."""
    build = known_build(request.GET.get("build", ""))
    return render(request, "frontend/operator/_tiles.html", {"build": build, **_tiles(build)})


def _tiles(build: BuildDescription) -> dict[str, Any]:
    return {
        "stats": server_stats.snapshot(),
        "coverage": queries.coverage_summary(build.fingerprint),
        "live": int((queries.live_coverage(build.fingerprint) > 0).sum()),
    }


@operator_page
@require_safe
def stage_table(request: HttpRequest) -> HttpResponse:
    """What changes of the stages, for htmx."""
    build = known_build(request.GET.get("build", ""))
    context = {"build": build, **_stages(build, chosen_measure(request), statuses())}
    return render(request, "frontend/operator/stages_live.html", context)


def _stages(build: BuildDescription, measure: Measure, found: list[Status]) -> dict[str, Any]:
    return {
        "stages": stages.stage_row(build, measure),
        "stage_measures": stages.MEASURES,
        "rings": stages.rings(build, found),
    }


@operator_page
@require_safe
def layers(request: HttpRequest) -> HttpResponse:
    """The table by layer alone, for htmx."""
    build, measure = known_build(request.GET.get("build", "")), chosen_measure(request)
    figures = measures.layer_figures(build, Measured(build, statuses()).grid(measure))
    return render(request, "frontend/operator/_layers.html", {"build": build, "measure": measure, "layers": figures})


@operator_page
@require_safe
def cells(request: HttpRequest) -> HttpResponse:
    """Every cell of one measure as bytes (see measures.payload); 304 while nothing changed."""
    build, measure = known_build(request.GET.get("build", "")), chosen_measure(request)
    data, tag = measures.payload(build, measure, Measured(build, statuses()).grid(measure))
    if request.headers.get("If-None-Match") == tag:
        response = HttpResponse(status=304)
    else:
        response = HttpResponse(data, content_type="application/json")
    response["ETag"] = tag
    return response


@operator_page
@require_safe
def layer(request: HttpRequest, fingerprint: str, number: int) -> HttpResponse:
    """Every expert of one layer, by every measure."""
    build = known_build(fingerprint)
    row = build.row_of(number)
    if row is None or build.kind != "experts":
        raise Http404
    measured = Measured(build, statuses())
    table = np.stack([measured.grid(measure)[row] for measure in MEASURES.values()], axis=1)
    experts = [(expert, [_known(value) for value in values]) for expert, values in enumerate(table)]
    context = {"build": build, "layer": number, "measures": MEASURES.values(), "experts": experts,
               "neighbours": _neighbours(build, row)}  # fmt: skip
    return render(request, "frontend/operator/layer.html", context)


@operator_page
@require_safe
def cell(request: HttpRequest, fingerprint: str, number: int, expert: int) -> HttpResponse:
    """One expert, or one unit of stages: every measure, who holds it, who held it. Alone for htmx, else as a page."""
    build = known_build(fingerprint)
    row = build.row_of(number)
    if row is None or expert >= build.experts_per_layer:
        raise Http404
    measured = Measured(build, statuses())
    shown = stages.MEASURES if build.kind == "stages" else MEASURES.values()
    found = holders.holdings(fingerprint, number, expert)
    context = {
        "build": build,
        "layer": number,
        "expert": expert,
        "run": run_words(fingerprint, expert, expert + 1) if build.kind == "stages" else "",
        "expert_bytes": build.expert_bytes[row],
        "types": ", ".join(dict.fromkeys(build.expert_types[row])),
        "readings": [Reading(measure, _known(measured.grid(measure)[row, expert])) for measure in shown],
        "holders": [holding for holding in found if holding.is_open],
        "earlier": [holding for holding in found if not holding.is_open],
    }
    template = "_cell.html" if request.headers.get("HX-Request") else "cell.html"
    return render(request, f"frontend/operator/{template}", context)


def _neighbours(build: BuildDescription, row: int) -> tuple[int | None, int | None]:
    """The layers before and after."""
    before = build.layers[row - 1] if row else None
    return before, build.layers[row + 1] if row + 1 < len(build.layers) else None


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def chosen_measure(request: HttpRequest) -> Measure:
    return MEASURES.get(request.GET.get("measure", ""), measures.REPLICAS)


def chosen_build(request: HttpRequest, builds: list[BuildDescription]) -> BuildDescription | None:
    """The one that was asked for; else the one that a living backbone serves; else the last one."""
    by_name = {build.fingerprint: build for build in builds}
    wanted = [request.GET.get("build", ""), *(str(status.get("build")) for status in statuses())]
    return next((by_name[name] for name in wanted if name in by_name), builds[-1] if builds else None)


def known_build(fingerprint: str) -> BuildDescription:
    """Raises Http404."""
    try:
        return queries.build(fingerprint)
    except UnknownBuild as error:
        raise Http404 from error


def statuses() -> list[Status]:
    """What living backbones say of themselves; nothing without a Redis. Raises RedisError."""
    if not settings.REDIS_URL:
        return []
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        return backbone_status.all_statuses(client)
