"""Slices over HTTP: a manifest and byte ranges, for nodes that have claimed exactly the range.

Stages are slices of a stage build, whose one layer counts units; with `?experts=0` they have holes in the place of
their experts.

Measured on Daphne: it buffers whatever a view hands over and never waits for a slow client. So an answer carries at
most RESPONSE_BYTES, whatever range was asked for; a client fetches a slice piece by piece and a stalled one holds one
piece of memory. A request for a whole slice above that size is therefore refused, not streamed.
"""

import asyncio
import base64
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from typing import Any

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from inference.builds import plan_for
from inference.byte_range import Span, requested_span
from inference.errors import CutRefused, GGUFError, NoStages, RangeOutside, UnknownBuild
from inference.manifest_cache import ManifestCache
from inference.slices import PIECE_BYTES, SliceManifest, SlicePlan
from market import queries

RESPONSE_BYTES = PIECE_BYTES
READ_THREADS = 4

_manifests = ManifestCache()
_readers = ThreadPoolExecutor(READ_THREADS, thread_name_prefix="slice")

SliceView = Callable[[HttpRequest, SlicePlan], Coroutine[Any, Any, HttpResponse]]
UrlView = Callable[..., Coroutine[Any, Any, HttpResponse]]


class _Refusal(Exception):
    """An answer in the place of what was asked for."""

    def __init__(self, status: int, code: str, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.response = JsonResponse(
            {"error": {"code": code, "message": message}}, status=status, headers=headers or {}
        )


def slice_view(view: SliceView) -> UrlView:
    """A view of one slice: checks method, token and claim, plans the slice, turns errors into the usual shape."""

    @wraps(view)
    async def checked(request: HttpRequest, build: str, layer: str, first: str, last: str) -> HttpResponse:
        try:
            if request.method not in ("GET", "HEAD"):
                raise _Refusal(405, "method_not_allowed", "use GET or HEAD", {"Allow": "GET, HEAD"})
            numbers = int(layer), int(first), int(last)
            await sync_to_async(_check_claim)(request.headers.get("Authorization", ""), build, *numbers)
            return await view(request, await _in_thread(_plan, build, *numbers, request.GET.get("experts") == "0"))
        except _Refusal as refusal:
            return refusal.response
        except (UnknownBuild, RangeOutside, CutRefused, NoStages) as error:
            return _Refusal(404, error.code, str(error)).response
        except GGUFError as error:
            return _Refusal(503, error.code, str(error)).response

    return csrf_exempt(checked)


def _check_claim(authorization: str, build: str, layer: int, first: int, last: int) -> None:
    """Raises _Refusal unless the bearer's node has an open claim of exactly this range."""
    scheme, _, token = authorization.partition(" ")
    node = queries.authenticate(token.strip()) if scheme.lower() == "bearer" else None
    if node is None:
        raise _Refusal(
            401, "bad_token", "send a node's token: Authorization: Bearer ...", {"WWW-Authenticate": "Bearer"}
        )
    if node.suspended:
        raise _Refusal(403, "suspended", "this node is suspended; see /api/me for the reason")
    if not queries.has_claimed(node.node_id, build, layer, first, last):
        raise _Refusal(403, "not_claimed", "this node has no open claim of exactly this range; claim it first")


def _plan(build: str, layer: int, first: int, last: int, without_experts: bool) -> SlicePlan:
    return plan_for(build, layer, first, last, without_experts=without_experts)


@slice_view
async def manifest(request: HttpRequest, plan: SlicePlan) -> HttpResponse:
    """GET .../manifest: size, digest and piece digests of the slice, as `SliceManifest.to_json` writes them."""
    body = (await _manifest(plan)).to_json()
    return HttpResponse(body, content_type="application/json", headers={"Cache-Control": "private, no-transform"})


@slice_view
async def data(request: HttpRequest, plan: SlicePlan) -> HttpResponse:
    """GET or HEAD of the slice: 206 with at most RESPONSE_BYTES, 200 where the whole slice fits in, 304, 416, 412."""
    digests = await _manifest(plan)
    etag = f'"{digests.sha256}"'
    headers = _headers(digests, etag)
    if _matches(request.headers.get("If-None-Match", ""), etag):
        return HttpResponse(status=304, headers=headers)
    condition = request.headers.get("If-Range")
    if condition is not None and condition.strip() != etag:
        return await _whole(request, plan, headers, "slice_changed")
    span = requested_span(request.headers.get("Range"), plan.size, RESPONSE_BYTES) if request.method == "GET" else None
    if span is None:
        return await _whole(request, plan, headers, "range_required")
    if not isinstance(span, Span):
        refusal = _Refusal(416, "range_not_satisfiable", f"the slice has {plan.size} bytes")
        refusal.response.headers["Content-Range"] = f"bytes */{plan.size}"
        return refusal.response
    headers["Content-Range"] = f"bytes {span.start}-{span.stop - 1}/{plan.size}"
    return _answer(206, await _in_thread(plan.read, *span), headers)


async def _whole(request: HttpRequest, plan: SlicePlan, headers: dict[str, str], code: str) -> HttpResponse:
    """The whole slice where it fits into one answer; for HEAD its headers; else a refusal that says what to do."""
    if request.method == "HEAD":
        return HttpResponse(headers=headers | {"Content-Length": str(plan.size)})
    if plan.size <= RESPONSE_BYTES:
        return _answer(200, await _in_thread(plan.read, 0, plan.size), headers)
    if code == "slice_changed":
        return _Refusal(412, code, "the slice is not the one of If-Range; fetch its manifest and begin again").response
    return _Refusal(
        400, code, f"ask for pieces with Range: bytes=0-{RESPONSE_BYTES - 1} and so on; the slice has {plan.size} bytes"
    ).response


def _headers(digests: SliceManifest, etag: str) -> dict[str, str]:
    encoded = base64.b64encode(bytes.fromhex(digests.sha256)).decode()
    return {
        "Content-Type": "application/octet-stream",
        "Accept-Ranges": "bytes",
        "ETag": etag,
        "Repr-Digest": f"sha-256=:{encoded}:",  # RFC 9530: of the whole slice, whatever part is sent
        "Cache-Control": "private, no-transform",  # a proxy that recompressed would break ranges and digests
    }


def _answer(status: int, body: bytes, headers: dict[str, str]) -> HttpResponse:
    return HttpResponse(body, status=status, headers=headers | {"Content-Length": str(len(body))})


def _matches(if_none_match: str, etag: str) -> bool:
    tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return etag in tags or "*" in tags


async def _manifest(plan: SlicePlan) -> SliceManifest:
    # Shielded: a client that leaves must not cancel the digesting that others wait for.
    return await asyncio.shield(asyncio.wrap_future(_manifests.get(plan)))


async def _in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run file reads outside the event loop and outside the threads that Django's database work uses."""
    return await asyncio.get_running_loop().run_in_executor(_readers, function, *arguments)
