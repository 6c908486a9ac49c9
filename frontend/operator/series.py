"""Figures over time: charts where JavaScript draws them, and a table of the same for everybody."""

from collections.abc import Sequence
from dataclasses import dataclass

import redis
from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe

from frontend import samples
from frontend.operator.access import operator_page
from frontend.samples import Sample, Values

SPANS: tuple[tuple[int, Promise], ...] = (
    (10, gettext_lazy("10 minutes")),
    (60, gettext_lazy("1 hour")),
    (360, gettext_lazy("6 hours")),
    (1440, gettext_lazy("24 hours")),
)
DEFAULT_SPAN = 60


@dataclass(frozen=True)
class Line:
    label: str
    values: Values

    @property
    def known(self) -> list[float]:
        return [value for value in self.values if value is not None]

    @property
    def last(self) -> float | None:
        return self.known[-1] if self.known else None

    @property
    def mean(self) -> float | None:
        return sum(self.known) / len(self.known) if self.known else None

    @property
    def most(self) -> float | None:
        return max(self.known, default=None)


@dataclass(frozen=True)
class Chart:
    key: str
    title: str
    unit: str
    lines: tuple[Line, ...]


@operator_page
@require_safe
def page(request: HttpRequest) -> HttpResponse:
    minutes = _span(request)
    found = _samples(minutes)
    context = {"charts": charts(found), "count": len(found), "minutes": minutes, "spans": SPANS}
    return render(request, "frontend/operator/series.html", context)


@operator_page
@require_safe
def data(request: HttpRequest) -> JsonResponse:
    """{"at": Unix times, "charts": [{"key", "lines": [[value or null, ...], ...]}]}, oldest first."""
    found = _samples(_span(request))
    shown = [{"key": chart.key, "lines": [line.values for line in chart.lines]} for chart in charts(found)]
    return JsonResponse({"at": [sample.at for sample in found], "charts": shown})


def _span(request: HttpRequest) -> int:
    asked = request.GET.get("minutes", "")
    return next((minutes for minutes, _ in SPANS if str(minutes) == asked), DEFAULT_SPAN)


def _samples(minutes: int) -> list[Sample]:
    """Nothing without a Redis. Raises RedisError."""
    if not settings.REDIS_URL:
        return []
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        return samples.read(client, minutes)


def charts(found: Sequence[Sample]) -> list[Chart]:
    places = [samples.rates(found, [sample.rows[place] for sample in found]) for place in range(len(samples.PLACES))]
    place_names = (_("by workers"), _("by the backbone"), _("hot set"), _("fallback"))
    traffic = samples.quotients([s.moved_bytes for s in found], [s.tokens for s in found])
    joined = samples.trailing_rates(found, [s.joined for s in found], samples.MOVE_SECONDS, 60)
    left = samples.trailing_rates(found, [s.left for s in found], samples.MOVE_SECONDS, 60)
    return [
        _chart("tokens", _("Tokens"), _("tokens/s"), (_("generated"), [s.tokens_per_second for s in found])),
        _chart(
            "sequences",
            _("Sequences"),
            _("sequences"),
            (_("running"), [s.active for s in found]),
            (_("waiting"), [s.waiting for s in found]),
        ),
        _chart("rows", _("Where rows are computed"), _("rows/s"), *zip(place_names, places, strict=True)),
        _chart(
            "answers",
            _("Answer time of workers"),
            _("ms"),
            (_("median"), [s.answer_p50 for s in found]),
            (_("99%"), [s.answer_p99 for s in found]),
        ),
        _chart("bytes", _("Traffic"), _("bytes/token"), (_("sent and received"), traffic)),
        _chart("moves", _("Devices that come and go"), _("devices/minute"), (_("joined"), joined), (_("left"), left)),
        _chart("nodes", _("Devices that hold experts"), _("devices"), (_("devices"), [s.nodes for s in found])),
        _chart("spend", _("Spending"), _("credits/hour"), (_("earned by devices"), samples.spend_per_hour(found))),
    ]


def _chart(key: str, title: str, unit: str, *lines: tuple[str, Sequence[float | None]]) -> Chart:
    return Chart(key, title, unit, tuple(Line(label, list(values)) for label, values in lines))
