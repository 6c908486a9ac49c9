"""The page `/status` and its parts that change."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from frontend.security import page
from frontend.status.figures import public_status


@require_safe
@never_cache
@page
def status(request: HttpRequest) -> HttpResponse:
    return render(request, "frontend/status/index.html", {"status": public_status()})


@require_safe
@never_cache
@page
def live(request: HttpRequest) -> HttpResponse:
    """The parts that change, for htmx."""
    return render(request, "frontend/status/live.html", {"status": public_status()})
