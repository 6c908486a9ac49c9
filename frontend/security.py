"""What every page of ours tells the browser about itself, and what it shows while a store is out of reach."""

import logging
from collections.abc import Callable
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any

import redis
from django.db import OperationalError
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils.decorators import sync_and_async_middleware

from market.errors import MarketError, TooManyRequests

logger = logging.getLogger(__name__)

# Scripts, styles and connections of this server only.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; manifest-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# What Redis (cache, rate limits, figures) and the database raise when they do not answer.
OUT_OF_REACH = (redis.RedisError, OperationalError)
RETRY_SECONDS = 5
View = Callable[..., Any]


def page(view: View) -> View:
    """Adds the content security policy to the answer of a view, asynchronous or not; 503 while a store is away."""
    if iscoroutinefunction(view):

        @wraps(view)
        async def guarded_async(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            try:
                return _with_policy(await view(request, *args, **kwargs))
            except OUT_OF_REACH as error:
                return _with_policy(unavailable(request, error))

        return guarded_async

    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        try:
            return _with_policy(view(request, *args, **kwargs))
        except OUT_OF_REACH as error:
            return _with_policy(unavailable(request, error))

    return guarded


def isolated(view: View) -> View:
    """Adds what a synchronous page needs for threads: browsers let workers share memory only where no page of another
    origin can be in the same process. `frontend.static_files` says the same of the worker's scripts."""

    @wraps(view)
    def alone(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        response: HttpResponseBase = view(request, *args, **kwargs)
        response["Cross-Origin-Opener-Policy"] = "same-origin"
        response["Cross-Origin-Embedder-Policy"] = "require-corp"
        return response

    return alone


def refused(response: HttpResponse, error: MarketError) -> HttpResponse:
    """The page that shows a refusal, with the time after which it may be asked again."""
    if isinstance(error, TooManyRequests):
        response["Retry-After"] = str(error.retry_after_seconds)
    return response


def unavailable(request: HttpRequest, error: Exception) -> HttpResponseBase:
    """A page that needs neither Redis nor the database."""
    logger.warning("%s %s: a store is out of reach: %s", request.method, request.path, error)
    response = render(request, "frontend/unavailable.html", status=503)
    response["Retry-After"] = str(RETRY_SECONDS)
    return response


def _with_policy(response: HttpResponseBase) -> HttpResponseBase:
    response["Content-Security-Policy"] = POLICY
    return response


@sync_and_async_middleware
def policy_everywhere(get_response: View) -> View:
    """Middleware: a page without a policy of its own, such as the admin's and Django's error pages, gets ours.

    Pages only: a script that becomes a worker obeys the policy of its own file, and WebAssembly needs a wider one.
    """
    if iscoroutinefunction(get_response):

        async def with_policy_async(request: HttpRequest) -> HttpResponseBase:
            return _with_policy_if_page(await get_response(request))

        return with_policy_async

    return lambda request: _with_policy_if_page(get_response(request))


def _with_policy_if_page(response: HttpResponseBase) -> HttpResponseBase:
    is_page = response.get("Content-Type", "").startswith("text/html")
    return response if not is_page or response.has_header("Content-Security-Policy") else _with_policy(response)
