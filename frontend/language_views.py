"""`/language/CODE`: remembers the language that a visitor chose in the footer, and goes back to the page."""

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from frontend.security import page

KEPT_SECONDS = 365 * 24 * 3600


@require_safe
@never_cache
@page
def language(request: HttpRequest, code: str) -> HttpResponse:
    """A link, not a form: it works on every page without a token, and choosing a language harms nobody."""
    if code not in dict(settings.LANGUAGES):
        raise Http404
    back = request.GET.get("next", "/")
    if not url_has_allowed_host_and_scheme(back, allowed_hosts=None):
        back = "/"
    response = redirect(back)
    response.set_cookie(
        settings.LANGUAGE_COOKIE_NAME, code, max_age=KEPT_SECONDS, samesite="Lax", secure=request.is_secure()
    )
    return response
