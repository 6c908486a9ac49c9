"""The short way to /v1/: API requests carry a key, no cookie, so sessions, CSRF, users and messages are not theirs.

Under ASGI each of those middlewares costs two changes of thread per request; together they took as much processor time
as checking, storing and queueing the request itself.
"""

from asyncio import iscoroutinefunction
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import resolve
from django.utils.decorators import sync_and_async_middleware

PREFIX = "/v1/"
Response = HttpResponseBase | Awaitable[HttpResponseBase]


@sync_and_async_middleware
def api_shortcut(get_response: Callable[[HttpRequest], Response]) -> Callable[[HttpRequest], Response]:
    """Under ASGI calls the views below /v1/ directly; they answer every error themselves."""
    if not iscoroutinefunction(get_response):
        return get_response

    async def shortcut(request: HttpRequest) -> HttpResponseBase:
        answer: Any = get_response
        if request.path_info.startswith(PREFIX):
            request.resolver_match = match = resolve(request.path_info)
            answer = partial(match.func, **match.kwargs)  # our patterns name all their parts
        response: HttpResponseBase = await answer(request)
        return response

    return shortcut
