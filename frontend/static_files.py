"""Static files under ASGI: WhiteNoise finds and describes them, this middleware sends them without a file iterator.

WhiteNoise's own middleware is synchronous: each request, also one that streams for minutes, would pass through
a thread, and a file would be iterated synchronously. Our files are small, so each is read whole.
"""

from asyncio import iscoroutinefunction
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from asgiref.sync import markcoroutinefunction, sync_to_async
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from whitenoise.middleware import WhiteNoiseMiddleware

WORKER_SCRIPTS = "/static/worker/"
Response = HttpResponseBase | Awaitable[HttpResponseBase]


class StaticFilesMiddleware(WhiteNoiseMiddleware):  # type: ignore[misc]  # WhiteNoise carries no types
    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Response]) -> None:
        super().__init__(get_response)
        self._is_async = iscoroutinefunction(get_response)
        if self._is_async:
            markcoroutinefunction(self)

    def add_files(self, root: str | Path, prefix: str | None = None) -> None:
        """STATIC_ROOT exists only after `collectstatic`; without it the files are found in the apps."""
        if Path(root).is_dir():
            super().add_files(root, prefix)

    def __call__(self, request: HttpRequest) -> Response:
        found = self.find_file(request.path_info) if self.autorefresh else self.files.get(request.path_info)
        if found is None:
            response: Response = self.get_response(request)
            return response
        if self._is_async:
            return sync_to_async(self.send, thread_sensitive=False)(found, request)
        return self.send(found, request)

    @staticmethod
    def send(static_file: Any, request: HttpRequest) -> HttpResponse:
        """The file, or what WhiteNoise answers instead: 304, 405, 416, a part of it."""
        found = static_file.get_response(request.method, request.META)
        body = b""
        if found.file is not None:
            with found.file as file:
                body = file.read()
        response = HttpResponse(body, status=int(found.status))
        del response["Content-Type"]
        for name, value in found.headers:
            response[name] = value
        if request.path_info.startswith(WORKER_SCRIPTS):
            # A Web Worker of an isolated page must be isolated itself (frontend.security.isolated).
            response["Cross-Origin-Embedder-Policy"] = "require-corp"
        return response
