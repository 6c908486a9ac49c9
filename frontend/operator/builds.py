"""Models: what is on offer, what a GGUF of the configured folders holds, and the buttons that publish and retire."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from frontend.operator.access import operator_act, operator_page, who
from frontend.operator.heat_map import statuses
from frontend.operator.node_acts import ReasonForm
from inference import builds as held_builds
from inference.errors import GGUFError
from inference.gguf_index import ModelIndex
from inference.model_report import as_object
from inference.reports import build_description
from inference.stages import stage_fingerprint
from market import build_list, commands
from market.build_list import BuildLine
from market.errors import MarketError


@dataclass(frozen=True)
class Line:
    """running: backbones that serve the build now; model: the build whose page shows it, "" where there is none."""

    build: BuildLine
    running: int
    model: str


@dataclass(frozen=True)
class LayerGroup:
    """Neighbouring layers that are alike."""

    first: int
    last: int
    experts: int
    expert_bytes: int
    types: str
    offered: bool


@operator_page
@require_safe
def page(request: HttpRequest) -> HttpResponse:
    """The list; with ?path= also the index of that file."""
    return render(request, "frontend/operator/builds.html", _context(request.GET.get("path", "")))


def _context(path: str) -> dict[str, Any]:
    context: dict[str, Any] = {
        "lines": _lines(),
        "folders": held_builds.folders(),
        "files": held_builds.model_files(),
        "path": path,
    }
    if path:
        try:
            index = held_builds.index_at(path)
        except GGUFError as error:
            context["problem"] = str(error)
        else:
            context |= {
                "index": as_object(index),
                "names": [file.name for file in index.files],
                "groups": list(layer_groups(index)),
                "published": build_list.find(index.fingerprint),
                "offered": len(index.offered_layers),
            }
    return context


def _lines() -> list[Line]:
    lines = build_list.build_lines()
    # Stages are served, and shown, by the model that they are stages of.
    models = {line.fingerprint: line.fingerprint for line in lines if line.kind == "experts"}
    models |= {stage_fingerprint(model): model for model in models}
    running = [status.get("build") for status in statuses()]
    return [Line(line, running.count(models.get(line.fingerprint)), models.get(line.fingerprint, "")) for line in lines]


def layer_groups(index: ModelIndex) -> Iterable[LayerGroup]:
    """Equal neighbours in one line, as `manage.py inspect` shows them."""
    groups: list[LayerGroup] = []
    for layer in index.layers.values():
        types = ", ".join(dict.fromkeys(tensor.type_name for tensor in layer.tensors))
        offered = layer.layer in index.offered_layers
        alike = (layer.experts, layer.expert_bytes, types, offered)
        last = groups[-1] if groups else None
        if last and last == LayerGroup(last.first, layer.layer - 1, *alike):
            groups[-1] = LayerGroup(last.first, layer.layer, *alike)
        else:
            groups.append(LayerGroup(layer.layer, layer.layer, *alike))
    return groups


@operator_act
@require_POST
def publish(request: HttpRequest) -> HttpResponse:
    """Puts the experts of a file on offer; harmless when they are."""
    path = request.POST.get("path", "")
    try:
        index = held_builds.index_at(path)
        if not index.offered_layers:
            raise GGUFError(_("no layer of this model can be lent"))
        new = commands.publish_build(build_description(index))
    except (GGUFError, MarketError) as error:
        context = {**_context(path), "problem": str(error)}
        return render(request, "frontend/operator/builds.html", context, status=400)
    words = _("%(name)s is on offer.") if new else _("%(name)s was published before.")
    messages.success(request, words % {"name": index.name})
    return redirect("operator-builds")


@operator_act
@require_http_methods(["GET", "HEAD", "POST"])
def change(request: HttpRequest, fingerprint: str) -> HttpResponse:
    """Retires a build on offer, restores a retired one; both ask for a reason."""
    build = build_list.find(fingerprint)
    if build is None:
        raise Http404
    form: forms.Form = ReasonForm(request.POST) if request.method == "POST" else ReasonForm()
    if form.is_valid():
        act = commands.retire_build if build.retired_at is None else commands.restore_build
        try:
            act(fingerprint, by=who(request), reason=form.cleaned_data["reason"])
        except MarketError as refusal:
            form.add_error(None, str(refusal))
        else:
            messages.success(request, _told(build.name, build.retired_at))
            return redirect("operator-builds")
    status = 400 if form.errors else 200
    return render(request, "frontend/operator/build_change.html", {"build": build, "form": form}, status=status)


def _told(name: str, retired_at: datetime | None) -> str:
    words = _("%(name)s is on offer again.") if retired_at else _("%(name)s is retired; its claims end within minutes.")
    return words % {"name": name}
