"""What every page of ours tells the browser about itself: scripts, styles and connections of this server only."""

from collections.abc import Callable
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any

from django.http.response import HttpResponseBase

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
View = Callable[..., Any]


def page(view: View) -> View:
    """Adds the content security policy to the answer of a view, asynchronous or not."""
    if iscoroutinefunction(view):

        @wraps(view)
        async def guarded_async(*args: Any, **kwargs: Any) -> HttpResponseBase:
            return _with_policy(await view(*args, **kwargs))

        return guarded_async

    @wraps(view)
    def guarded(*args: Any, **kwargs: Any) -> HttpResponseBase:
        return _with_policy(view(*args, **kwargs))

    return guarded


def _with_policy(response: HttpResponseBase) -> HttpResponseBase:
    response["Content-Security-Policy"] = POLICY
    return response
