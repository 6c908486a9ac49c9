"""Refuses forms that cannot be read, before anything else looks into them.

Django reads a form again for its own error page (that page may hold a form), so one that cannot be read fails there a
second time: a stranger got a 500 and the log two tracebacks for a Content-Type with another charset, for a thousand
and one fields, and for a body above DATA_UPLOAD_MAX_MEMORY_SIZE.
"""

from asyncio import iscoroutinefunction
from collections.abc import Awaitable, Callable

from django.core.exceptions import BadRequest, RequestDataTooBig, SuspiciousOperation
from django.http import HttpRequest, HttpResponse, UnreadablePostError
from django.http.multipartparser import MultiPartParserError
from django.http.response import HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

# Addresses below read JSON, in a shape of errors of their own.
JSON_PREFIX = "/api/"
Response = HttpResponseBase | Awaitable[HttpResponseBase]


@sync_and_async_middleware
def readable_forms(get_response: Callable[[HttpRequest], Response]) -> Callable[[HttpRequest], Response]:
    """413 for a form that is too large, 400 for one that cannot be read; others go on."""
    if iscoroutinefunction(get_response):

        async def checked_async(request: HttpRequest) -> HttpResponseBase:
            response: HttpResponseBase = refusal(request) or await get_response(request)
            return response

        return checked_async

    def checked(request: HttpRequest) -> Response:
        return refusal(request) or get_response(request)

    return checked


def refusal(request: HttpRequest) -> HttpResponse | None:
    """What to answer in place of a view; None where the form, or no form at all, is read."""
    if request.method != "POST" or request.path_info.startswith(JSON_PREFIX):
        return None
    try:
        request.POST  # noqa: B018  (reading it is what may fail)
    except RequestDataTooBig:
        return _plain(413, "This form is too large.")
    except (BadRequest, SuspiciousOperation, MultiPartParserError, UnreadablePostError):
        return _plain(400, "This form cannot be read.")
    return None


def _plain(status: int, message: str) -> HttpResponse:
    return HttpResponse(message, status=status, content_type="text/plain; charset=utf-8")
