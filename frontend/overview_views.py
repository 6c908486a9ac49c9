"""The first page: coverage, workers, speed, errors, and a box that continues a text.

Everything works without JavaScript: htmx only refreshes the parts that change, prompt.js only shows the answer as it
grows instead of when it is finished.
"""

from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils.crypto import salted_hmac
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from config.checks import is_public
from frontend import figures
from frontend.security import page, unavailable
from inference import rate_limit
from inference.openai import errors, events, submission
from inference.openai.answers import Completion, new_head
from inference.openai.errors import ApiError
from inference.openai.events import Answer
from inference.openai.parameters import ApiRequest
from inference.openai.submission import Accepted
from inference.openai.views import EventStream, accepted_in_thread, error_response, event_response, in_thread
from inference.sampling import SamplingParameters
from inference.token_reader import token_reader

PROMPT_LIMIT = 2000
EXAMPLE = "In the beginning"
SAMPLING = SamplingParameters(temperature=0.8, max_tokens=96)
STREAM_TYPE = "text/event-stream"


def offers_prompt() -> bool:
    """Whether the page has the box: where only this machine sees it, or the operator wants it."""
    return settings.DEMO_PROMPT or settings.DEBUG or not is_public(settings)


@require_safe
@never_cache
@page
def index(request: HttpRequest) -> HttpResponse:
    return _index(request)


def _index(request: HttpRequest, *, status: int = 200, **context: Any) -> HttpResponse:
    shown = {"prompt": EXAMPLE, "prompt_limit": PROMPT_LIMIT, "offers_prompt": offers_prompt(), **context}
    return render(request, "frontend/index.html", {"overview": figures.overview(), **shown}, status=status)


@require_safe
@never_cache
@page
def live(request: HttpRequest) -> HttpResponse:
    """The parts that change, for htmx."""
    return render(request, "frontend/live.html", {"overview": figures.overview()})


@require_POST
@page
async def try_prompt(request: HttpRequest) -> HttpResponseBase:
    """Continues the text of the box: as events for prompt.js, as a whole page for a form without JavaScript."""
    prompt = request.POST.get("prompt", "")
    address = request.META.get("REMOTE_ADDR", "")
    wants_events = STREAM_TYPE in request.headers.get("Accept", "")
    try:
        accepted = await accepted_in_thread(lambda: accept_prompt(prompt, address))
        reader = token_reader(settings.REDIS_URL)
        answer = Answer(reader, accepted.job_ids, patience_seconds=settings.API_PATIENCE_SECONDS)
        head = new_head("page", accepted.job_ids[0], accepted.tokenizer.name, accepted.build)
        if wants_events:
            chunks = events.streamed(answer, Completion(None), head, usage_of_prompt=None)
            return event_response(EventStream(answer, chunks, background=False), accepted.job_ids)
        return await _whole_page(request, prompt, answer)
    except ApiError as error:
        if wants_events:
            return error_response(error)
        return await _refused(request, prompt, error)


async def _refused(request: HttpRequest, prompt: str, refusal: ApiError) -> HttpResponseBase:
    """The page with the reason beside the box; a bare one where the figures cannot be read either."""
    try:
        return await in_thread(lambda: _index(request, prompt=prompt, problem=str(refusal), status=refusal.status))
    except ApiError as error:
        return unavailable(request, error)


async def _whole_page(request: HttpRequest, prompt: str, answer: Answer) -> HttpResponseBase:
    try:
        async for _ in answer.batches():
            pass
    finally:
        if answer.open_ids:
            await sync_to_async(submission.cancel, thread_sensitive=False)(answer.open_ids)
    return await in_thread(lambda: _index(request, prompt=prompt, answer=answer.choices[0].text))


def accept_prompt(prompt: str, address: str) -> Accepted:
    """Queues a text of the box. Raises ApiError."""
    if not offers_prompt():
        raise ApiError(403, "This server takes prompts through its API only.", code="no_prompt_box")
    if not prompt.strip() or len(prompt) > PROMPT_LIMIT:
        raise errors.bad_value("prompt", f"a text of at most {PROMPT_LIMIT} characters")
    # The digest, not the address: nothing of who asked is kept.
    asker = salted_hmac("frontend.try", address).hexdigest()[:16]
    wait = rate_limit.seconds_to_wait(f"try/{asker}", settings.DEMO_REQUESTS_PER_MINUTE)
    if wait:
        raise errors.too_many_requests(settings.DEMO_REQUESTS_PER_MINUTE, wait)
    model = submission.served_model()
    return submission.accept(ApiRequest(model.name, SAMPLING, prompts=(prompt,)), None)
