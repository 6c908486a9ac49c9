"""The addresses below /v1/. Each view reads a request, calls one function of `submission` in a thread, and answers.

A client that disconnects cancels its generations (unless `background`), whether it was being streamed to or waiting.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.db import connection
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse, StreamingHttpResponse
from django.views.decorators.csrf import csrf_exempt

from inference.openai import errors, events, submission
from inference.openai.answers import Chat, Completion, LogProbabilities, Shape, new_head
from inference.openai.errors import ApiError
from inference.openai.events import Answer
from inference.openai.submission import Accepted
from inference.token_reader import token_reader

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
View = Callable[..., Coroutine[Any, Any, HttpResponseBase]]


def error_response(error: ApiError) -> HttpResponse:
    response = JsonResponse(error.body(), status=error.status)
    if error.retry_after_seconds is not None:
        response["Retry-After"] = str(error.retry_after_seconds)
    if error.status == 401:
        response["WWW-Authenticate"] = "Bearer"
    return response


def api_view(*methods: str) -> Callable[[View], View]:
    """A view without cookies and CSRF tokens that answers every error in OpenAI's shape."""

    def decorate(view: View) -> View:
        @csrf_exempt
        @wraps(view)
        async def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            try:
                if request.method not in methods:
                    raise errors.bad_method(str(request.method), " or ".join(methods))
                return await view(request, *args, **kwargs)
            except ApiError as error:
                return error_response(error)
            except Exception:
                logger.exception("%s %s failed", request.method, request.path)
                return error_response(errors.internal())

        return guarded

    return decorate


def read_body(request: HttpRequest) -> bytes:
    """Raises ApiError when it is longer than the server reads."""
    try:
        return request.body
    except RequestDataTooBig as error:
        raise errors.body_too_large(settings.DATA_UPLOAD_MAX_MEMORY_SIZE or 0) from error


def authorization(request: HttpRequest) -> str:
    return request.headers.get("Authorization", "")


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs database work beside the event loop, and holds no database connection afterwards.

    An answer may be streamed for hours; its request must not keep a connection that long. Raises ApiError for a store
    that is out of reach, beside what the function raises.
    """

    def run() -> T:
        try:
            with submission.stores_reached():
                return function(*args, **kwargs)
        finally:
            connection.close()

    return await sync_to_async(run)()


async def accepted_in_thread(accept: Callable[[], Accepted]) -> Accepted:
    """Runs `accept` in a thread; cancels what it queued when the client leaves meanwhile."""
    work = asyncio.ensure_future(in_thread(accept))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        work.add_done_callback(_cancel_unwanted)
        raise


def _cancel_unwanted(work: "asyncio.Future[Accepted]") -> None:
    if not work.cancelled() and work.exception() is None and not work.result().request.background:
        asyncio.get_running_loop().run_in_executor(None, submission.cancel, work.result().job_ids)


class EventStream:
    """The body of a streamed answer. Cancels what is open when it is closed early, whoever closes it.

    Django closes a response after the client has left too; the iterator alone would not do: one that was never started
    runs no `finally`.
    """

    def __init__(self, answer: Answer, chunks: AsyncGenerator[bytes], *, background: bool) -> None:
        self._answer, self._chunks, self._background = answer, chunks, background

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._chunks:
                yield chunk
        finally:
            await self._chunks.aclose()
            if self._is_unwanted:
                await asyncio.shield(sync_to_async(self.close, thread_sensitive=False)())

    @property
    def _is_unwanted(self) -> bool:
        return bool(self._answer.open_ids) and not self._background

    def close(self) -> None:
        if self._is_unwanted:
            submission.cancel(self._answer.open_ids)
            self._background = True  # asked once


def event_response(stream: EventStream, job_ids: tuple[str, ...]) -> StreamingHttpResponse:
    response = StreamingHttpResponse(stream, content_type="text/event-stream")
    response["Cache-Control"] = "no-cache"
    response["X-Accel-Buffering"] = "no"  # nginx would collect the tokens
    response["X-Generation-Ids"] = ",".join(job_ids)
    return response


async def respond(accepted: Accepted, make_shape: Callable[[LogProbabilities | None], Shape]) -> HttpResponseBase:
    """Streams the answers of an accepted request, or waits for them. Raises ApiError."""
    request, model = accepted.request, accepted.tokenizer
    wanted = request.sampling.logprobs is not None
    shape = make_shape(LogProbabilities(model.piece, model.end_tokens) if wanted else None)
    head = new_head(shape.prefix, accepted.job_ids[0], model.name, accepted.build)
    reader = token_reader(settings.REDIS_URL)
    answer = Answer(reader, accepted.job_ids, patience_seconds=settings.API_PATIENCE_SECONDS)
    if request.stream:
        prompt_tokens = accepted.prompt_tokens if request.include_usage else None
        chunks = events.streamed(answer, shape, head, usage_of_prompt=prompt_tokens)
        return event_response(EventStream(answer, chunks, background=request.background), accepted.job_ids)
    try:
        body = await events.whole(answer, shape, head, accepted.prompt_tokens)
    finally:
        if answer.open_ids and not request.background:
            await asyncio.shield(sync_to_async(submission.cancel, thread_sensitive=False)(answer.open_ids))
    response = JsonResponse(body)
    response["X-Generation-Ids"] = ",".join(accepted.job_ids)
    return response


# --- the addresses ----------------------------------------------------------------------------------------------------
@api_view("POST")
async def completions(request: HttpRequest) -> HttpResponseBase:
    key, body = authorization(request), read_body(request)
    return await respond(await accepted_in_thread(lambda: submission.accept_completion(key, body)), Completion)


@api_view("POST")
async def chat_completions(request: HttpRequest) -> HttpResponseBase:
    key, body = authorization(request), read_body(request)
    return await respond(await accepted_in_thread(lambda: submission.accept_chat(key, body)), Chat)


@api_view("GET")
async def models(request: HttpRequest) -> HttpResponseBase:
    entry = await in_thread(model_entry, authorization(request))
    return JsonResponse({"object": "list", "data": [entry]})


@api_view("GET")
async def model(request: HttpRequest, name: str) -> HttpResponseBase:
    entry = await in_thread(model_entry, authorization(request))
    if name != entry["id"]:
        raise errors.unknown_model(name[:200])
    return JsonResponse(entry)


def model_entry(authorization: str) -> dict[str, Any]:
    """The served model as /v1/models lists it; raises ApiError."""
    submission.authenticate(authorization)
    served = submission.served_model()
    return {
        "id": served.name,
        "object": "model",
        "created": served.created,
        "owned_by": "expertswarm",
        "context_length": settings.BACKBONE_CONTEXT_TOKENS,
    }


@api_view("GET", "DELETE")
async def generation(request: HttpRequest, generation_id: str) -> HttpResponseBase:
    """GET: how far it is. DELETE: cancels it."""
    job = await in_thread(submission.own_job, authorization(request), generation_id)
    if request.method == "DELETE":
        await in_thread(submission.cancel, [str(job.pk)])
    return JsonResponse(
        {
            "id": str(job.pk),
            "object": "generation",
            "model": job.model,
            "state": job.state,
            "finish_reason": job.finish or None,
            "prompt_tokens": job.prompt_count,
            "completion_tokens": job.generated_count,
            "created": int(job.created_at.timestamp()),
        }
    )


@api_view("GET")
async def generation_stream(request: HttpRequest, generation_id: str) -> HttpResponseBase:
    """The tokens after index `after`: for a reader that was cut off. Leaving does not cancel."""
    job = await in_thread(submission.own_job, authorization(request), generation_id)
    next_index = _next_index(request)
    if not await in_thread(submission.has_tokens, job):
        raise errors.tokens_gone(str(job.pk))
    reader = token_reader(settings.REDIS_URL)
    answer = Answer(reader, (str(job.pk),), patience_seconds=settings.API_PATIENCE_SECONDS, next_index=next_index)
    return event_response(EventStream(answer, events.raw(answer), background=True), answer.job_ids)


def _next_index(request: HttpRequest) -> int:
    """From `?after=INDEX`, or from the header that browsers send when they reconnect: `GENERATION:INDEX`."""
    after = request.GET.get("after") or request.headers.get("Last-Event-ID", "").rpartition(":")[2] or "-1"
    try:
        index = int(after)
    except ValueError:
        raise errors.bad_value("after", "the index of the last token that was read") from None
    if not -1 <= index < (1 << 31):
        raise errors.bad_value("after", "the index of the last token that was read, -1 for none")
    return index + 1


@api_view("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
async def unknown_address(request: HttpRequest, rest: str = "") -> HttpResponseBase:
    raise errors.unknown_address(request.path[:200])
