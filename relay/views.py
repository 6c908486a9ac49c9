"""`GET /api/relays`: where the relays are, for a worker whose present one goes away or that has not chosen yet."""

from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_GET

from relay import registration


@require_GET
def relays(request: HttpRequest) -> JsonResponse:
    """Addresses as in WELCOME; no secret: whoever may connect is asked for a token there. Touches no database."""
    return JsonResponse({"relays": list(registration.public_urls())})
