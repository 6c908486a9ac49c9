"""The page `/` and what it sends: a form that answers without JavaScript too, playground.js only shows it as it grows.

The form is protected by the session's CSRF token and goes to the same queue as the API; it carries no key, so visitors
are counted by their address (`playground.quota`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from config.checks import is_public
from frontend.playground import quota
from frontend.playground.request_form import (
    ALTERNATIVES,
    CHAT,
    NUMBERS,
    PROMPT_LIMIT,
    RequestForm,
    as_curl,
    as_python,
    empty_form,
    read_form,
)
from frontend.playground.tokens import PageShape, TokenLine, token_lines
from frontend.security import page, unavailable
from inference.openai import events, submission
from inference.openai.answers import new_head
from inference.openai.errors import ApiError
from inference.openai.events import Answer
from inference.openai.submission import Accepted
from inference.openai.views import EventStream, accepted_in_thread, error_response, event_response, in_thread
from inference.stats import snapshot
from inference.token_reader import token_reader

STREAM_TYPE = "text/event-stream"


@dataclass(frozen=True)
class Given:
    """A finished answer, for the page without JavaScript."""

    text: str
    tokens: Sequence[TokenLine]
    form: RequestForm


def offers_prompt(request: HttpRequest) -> bool:
    """Whether the page has the box: where only this machine sees it, the operator wants it, or staff asks."""
    return settings.DEMO_PROMPT or settings.DEBUG or not is_public(settings) or is_staff(request)


def is_staff(request: HttpRequest) -> bool:
    user = getattr(request, "user", None)
    return bool(user is not None and user.is_active and user.is_staff)


@require_safe
@never_cache
@page
def playground(request: HttpRequest) -> HttpResponse:
    return _page(request, empty_form(request.GET.get("mode", "")))


def _page(request: HttpRequest, form: RequestForm, *, status: int = 200, **context: Any) -> HttpResponse:
    shown = {
        "form": form,
        "numbers": [(name, form.values.get(name, ""), *bounds) for name, _, *bounds in NUMBERS],
        "prompt_limit": PROMPT_LIMIT,
        "alternatives": ALTERNATIVES,
        "chat_mode": CHAT,
        "offers_prompt": offers_prompt(request),
        "engine": snapshot()["engine"],
        "words": _words(),
        **_code(form),
        **context,
    }
    return render(request, "frontend/playground/index.html", shown, status=status)


def _words() -> dict[str, str]:
    """What playground.js says."""
    return {
        "user": _("You"),
        "assistant": _("Model"),
        "writing": _("The model is writing."),
        "figures": _("{tokens} tokens in {seconds} s"),
        "lost": _("The connection was lost."),
        "strip": _("A bar per token: how many of its rows were computed where"),
        "places": _("Rows computed by workers: {remote}; here because they are hot: {hot}; other rows here: {local}"),
    }


def _code(form: RequestForm) -> dict[str, str]:
    """The request as a program; empty where a field is no number."""
    try:
        name = submission.served_model().name
        return {"curl": as_curl(form, name, settings.PUBLIC_URL), "python": as_python(form, name, settings.PUBLIC_URL)}
    except ApiError:
        return {"curl": "", "python": ""}


@require_POST
@never_cache
@page
def code(request: HttpRequest) -> HttpResponse:
    """The form as curl and Python, for htmx."""
    try:
        return render(request, "frontend/playground/_code.html", _code(read_form(request.POST.dict())))
    except ApiError as error:
        return error_response(error)


@require_POST
@page
async def answer(request: HttpRequest) -> HttpResponseBase:
    """Answers the form: as events for playground.js, as a whole page for a form without JavaScript."""
    wants_events = STREAM_TYPE in request.headers.get("Accept", "")
    form = empty_form()
    try:
        form = read_form(request.POST.dict())
        accepted = await accepted_in_thread(lambda: accept(request, form))
        growing = Answer(
            token_reader(settings.REDIS_URL), accepted.job_ids, patience_seconds=settings.API_PATIENCE_SECONDS
        )
        if wants_events:
            shape = PageShape()
            head = new_head(shape.prefix, accepted.job_ids[0], accepted.tokenizer.name, accepted.build)
            chunks = events.streamed(growing, shape, head, usage_of_prompt=None)
            return event_response(EventStream(growing, chunks, background=False), accepted.job_ids)
        return await _whole_page(request, form, growing)
    except ApiError as error:
        if wants_events:
            return error_response(error)
        return await _refused(request, form, error)


async def _refused(request: HttpRequest, form: RequestForm, refusal: ApiError) -> HttpResponseBase:
    """The page with the reason beside the box; a bare one where the figures cannot be read either."""
    try:
        return await in_thread(lambda: _page(request, form, problem=str(refusal), status=refusal.status))
    except ApiError as error:
        return unavailable(request, error)


async def _whole_page(request: HttpRequest, form: RequestForm, growing: Answer) -> HttpResponseBase:
    try:
        async for _ in growing.batches():
            pass
    finally:
        if growing.open_ids:
            await sync_to_async(submission.cancel, thread_sensitive=False)(growing.open_ids)
    choice = growing.choices[0]
    given = Given(choice.text, token_lines(choice.history), form)
    return await in_thread(lambda: _page(request, _continued(form, choice.text), given=given))


def _continued(form: RequestForm, text: str) -> RequestForm:
    """The form for the next turn of a conversation; a text to continue stays as it was."""
    if not form.is_chat:
        return form
    said = ({"role": "user", "content": form.prompt}, {"role": "assistant", "content": text})
    return RequestForm(form.mode, "", form.system, form.stop, form.values, (*form.history, *said), form.probabilities)


def accept(request: HttpRequest, form: RequestForm) -> Accepted:
    """Queues what the form asks for. Raises ApiError."""
    if not offers_prompt(request):
        raise ApiError(403, "This server takes prompts through its API only.", code="no_prompt_box")
    asked = form.request(submission.served_model().name)
    if is_staff(request):
        return submission.accept(asked, None, lambda prompts: None)
    address = request.META.get("REMOTE_ADDR", "")
    quota.count_request(address)
    most = min(asked.sampling.max_tokens, settings.BACKBONE_CONTEXT_TOKENS)
    return submission.accept(asked, None, lambda prompts: quota.charge(address, most))
