"""The one error shape of every /api/ address: `{"error": {"code": ..., "message": ...}}`."""

import json
import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

import redis
from django.core.exceptions import RequestDataTooBig
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.urls import URLPattern, URLResolver
from django.views.defaults import page_not_found as html_page_not_found
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, HttpError, ValidationError
from ninja.parser import Parser

from market.errors import BadRequest, BodyTooLarge, MarketError, TooManyRequests

logger = logging.getLogger(__name__)
BODY_LIMIT_BYTES = 64 * 1024
API_PREFIX = "/api/"
View = Callable[..., HttpResponseBase]


def error_response(status: int, code: str, message: str) -> JsonResponse:
    return JsonResponse({"error": {"code": code, "message": message}}, status=status)


def on_market_error(_request: HttpRequest, error: MarketError) -> HttpResponse:
    response = error_response(error.status, error.code, str(error))
    if isinstance(error, TooManyRequests):
        response["Retry-After"] = str(error.retry_after_seconds)
    elif error.status == 503:
        response["Retry-After"] = "5"
    return response


def on_validation_error(_request: HttpRequest, error: ValidationError) -> HttpResponse:
    """Names the first wrong field, without its value: it may be a token."""
    first = error.errors[0] if error.errors else {"loc": (), "msg": "the request is wrong"}
    where = ".".join(str(part) for part in first["loc"][1:] if part != "wish")
    message = str(first["msg"]).removeprefix("Value error, ")
    return error_response(422, BadRequest.code, f"{where}: {message}" if where else message)


def on_http_error(request: HttpRequest, error: HttpError) -> HttpResponse:
    """What the framework itself refuses; it wraps what BoundedParser raises."""
    if isinstance(error.__cause__, MarketError):
        return on_market_error(request, error.__cause__)
    if isinstance(error.__cause__, RequestDataTooBig):
        return on_too_big(request, error.__cause__)
    codes = {401: "bad_token", 403: "forbidden", 404: "not_found", 405: "method_not_allowed"}
    return error_response(error.status_code, codes.get(error.status_code, BadRequest.code), error.message)


def on_missing_token(_request: HttpRequest, _error: AuthenticationError) -> HttpResponse:
    response = error_response(401, "bad_token", "send the token of POST /api/nodes as `Authorization: Bearer ...`")
    response["WWW-Authenticate"] = "Bearer"
    return response


def on_too_big(_request: HttpRequest, _error: RequestDataTooBig) -> HttpResponse:
    return error_response(413, BodyTooLarge.code, f"a body has at most {BODY_LIMIT_BYTES} bytes")


def on_not_found(_request: HttpRequest, _error: Http404) -> HttpResponse:
    return error_response(404, "not_found", "there is nothing at this address; see /api/docs")


def on_lost_cache(request: HttpRequest, error: redis.RedisError) -> HttpResponse:
    return _away(request, "cache", error)


def on_lost_database(request: HttpRequest, error: Exception) -> HttpResponse:
    return _away(request, "database", error)


def _away(request: HttpRequest, store: str, error: Exception) -> HttpResponse:
    """A store is out of reach for a moment: an outage that passes, not a defect; devices ask again."""
    logger.warning("%s cannot be answered, the %s is out of reach: %s", request.path, store, error)
    response = error_response(503, f"{store}_unreachable", "the server cannot answer at the moment; try again")
    response["Retry-After"] = "5"
    return response


def on_defect(_request: HttpRequest, error: Exception) -> HttpResponse:
    logger.error("an API request failed", exc_info=error)
    return error_response(500, "internal", "the server failed; the operator finds the reason in its log")


def install(api: NinjaAPI) -> None:
    """Gives every error of `api` the one shape."""
    handlers: list[tuple[type[Exception], Callable[..., HttpResponse]]] = [
        (Exception, on_defect),
        (MarketError, on_market_error),
        (redis.RedisError, on_lost_cache),
        (OperationalError, on_lost_database),
        (InterfaceError, on_lost_database),
        (ValidationError, on_validation_error),
        (HttpError, on_http_error),
        (AuthenticationError, on_missing_token),
        (RequestDataTooBig, on_too_big),
        (Http404, on_not_found),
    ]
    for error_type, handler in handlers:
        api.add_exception_handler(error_type, handler)


def shaped_urls(api: NinjaAPI) -> tuple[list[URLPattern | URLResolver], str, str]:
    """`api.urls`, with the framework's plain-text 405 in the one shape too."""
    patterns, app_name, namespace = api.urls
    for pattern in patterns:
        if isinstance(pattern, URLPattern):
            pattern.callback = _with_shaped_405(pattern.callback)
    return patterns, app_name, namespace


def _with_shaped_405(view: View) -> View:
    @wraps(view)
    def shaped(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        response = view(request, *args, **kwargs)
        if response.status_code != 405:
            return response
        answer = error_response(405, "method_not_allowed", f"{request.method} is not possible here; see /api/docs")
        answer["Allow"] = response.get("Allow", "")
        return answer

    shaped.csrf_exempt = True  # type: ignore[attr-defined]
    return shaped


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """The project's handler404: the one shape below /api/, Django's page elsewhere."""
    if request.path.startswith(API_PREFIX):
        return error_response(404, "not_found", "there is nothing at this address; see /api/docs")
    return html_page_not_found(request, exception)


class BoundedParser(Parser):
    """Reads JSON bodies up to BODY_LIMIT_BYTES; raises BodyTooLarge, or BadRequest for anything but JSON."""

    def parse_body(self, request: HttpRequest) -> dict[str, Any]:
        declared = request.headers.get("Content-Length", "0")
        if not declared.isdecimal() or int(declared) > BODY_LIMIT_BYTES or len(request.body) > BODY_LIMIT_BYTES:
            raise BodyTooLarge(f"a body has at most {BODY_LIMIT_BYTES} bytes")
        try:
            body: dict[str, Any] = json.loads(request.body)
        except (ValueError, RecursionError) as problem:
            raise BadRequest("the body is no JSON") from problem
        return body
