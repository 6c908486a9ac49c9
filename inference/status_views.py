"""How the server is: figures for people and Prometheus, health for load balancers. Open to all, nothing personal."""

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from inference import health, metrics, stats
from inference.process_metrics import ProcessCollector
from relay.consumers import ROSTER


@require_safe
@never_cache
def api_stats(_request: HttpRequest) -> JsonResponse:
    return JsonResponse(stats.snapshot())


@require_safe
@never_cache
def prometheus(_request: HttpRequest) -> HttpResponse:
    return HttpResponse(metrics.render(stats.snapshot(), ProcessCollector(ROSTER)), content_type=metrics.CONTENT_TYPE)


@require_safe
@never_cache
def alive(_request: HttpRequest) -> JsonResponse:
    """The process answers; nothing else is asked, so that a restart is never caused by a neighbour's trouble."""
    return JsonResponse({"alive": True})


@require_safe
@never_cache
def ready(_request: HttpRequest) -> JsonResponse:
    """503 until every part is ready."""
    parts = health.parts()
    is_ready = all(part.ready for part in parts.values())
    body = {"ready": is_ready, "parts": {name: part.to_json() for name, part in parts.items()}}
    return JsonResponse(body, status=200 if is_ready else 503)
