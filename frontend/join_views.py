"""`/join`: registers a device by form, shows its command once, and the state of the devices of this browser.

The session remembers which devices were registered here (their numbers, never a token).
"""

from django.conf import settings
from django.core.cache import cache
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.crypto import get_random_string, salted_hmac
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from frontend import figures
from frontend.security import page, refused
from inference.worker.options import TOKEN_VARIABLE
from market import commands, enrolment, limits
from market.commands.nodes import NAME_LIMIT
from market.errors import MarketError

SESSION_KEY = "devices"
MOST_DEVICES = 20
FORM_KEPT_SECONDS = 3600
# Which kernel a device has is known when its worker connects.
ANY_KERNEL = "any"


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@page
def join(request: HttpRequest) -> HttpResponse:
    if request.method != "POST":
        return _page(request)
    try:
        return _registered(request)
    except MarketError as error:
        return refused(_page(request, problem=str(error), status=error.status), error)


@require_safe
@never_cache
@page
def devices(request: HttpRequest) -> HttpResponse:
    """The state of this browser's devices, for htmx."""
    return render(request, "frontend/_devices.html", {"devices": _devices(request)})


def _page(request: HttpRequest, *, status: int = 200, **context: object) -> HttpResponse:
    asked = request.POST if request.method == "POST" else request.GET
    shown = {
        "presets": figures.budget_presets(),
        "chosen": asked.get("experts", ""),
        "name": asked.get("name", "")[:NAME_LIMIT],
        "name_limit": NAME_LIMIT,
        "devices": _devices(request),
        "form_id": get_random_string(16),
        "registration": enrolment.mode().value,
        **context,
    }
    return render(request, "frontend/join.html", shown, status=status)


def _registered(request: HttpRequest) -> HttpResponse:
    """Registers the device of the form and shows its token, once. Raises MarketError."""
    limits.count_registration(request.META.get("REMOTE_ADDR", ""))
    form_id = salted_hmac("frontend.join", request.POST.get("form_id", "")).hexdigest()
    if not cache.add(f"join/{form_id}", 1, FORM_KEPT_SECONDS):
        return _page(request, problem="This form was sent already; its device is in the list below.", status=409)
    preset = _preset(request.POST.get("experts", ""))
    budget_bytes = preset.size_bytes if preset else None
    with transaction.atomic():
        enrolment.admit(request.POST.get("invite", ""))
        node_id, token = commands.register_node(request.POST.get("name", ""), ANY_KERNEL, budget_bytes)
    known = request.session.get(SESSION_KEY, [])
    request.session[SESSION_KEY] = [*known, node_id][-MOST_DEVICES:]
    budget = f" --budget {budget_bytes}" if budget_bytes else ""
    # In the environment: the arguments of a process can be read by everybody on its machine.
    command = f"{TOKEN_VARIABLE}={token} python -m inference.worker --server {settings.PUBLIC_URL}{budget}"
    return _page(request, command=command, token=token, preset=preset, name="")


def _preset(experts: str) -> figures.Preset | None:
    """The chosen budget; None: the worker decides by its own memory."""
    return next((preset for preset in figures.budget_presets() if str(preset.experts) == experts), None)


def _devices(request: HttpRequest) -> list[figures.DeviceLine]:
    """Newest first."""
    lines = [figures.device_line(str(node_id)) for node_id in request.session.get(SESSION_KEY, [])]
    return [line for line in reversed(lines) if line is not None]
