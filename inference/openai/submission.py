"""From a request to queued generations: who asks, limits, prompts to tokens, jobs, Celery. Synchronous; one call each.

Views call these in a thread, inside `stores_reached`. Nothing is stored before everything is checked.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import redis
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import OperationalError as OperationalDatabaseError
from django.db import transaction
from kombu.exceptions import OperationalError

from config import rate_limit
from config.broker import message_priority
from config.celery import BACKBONE_QUEUE, app
from inference import api_keys, backbone_status, jobs, token_stream, tokenizer
from inference.api_keys import KeyView
from inference.errors import ModelNotLoaded, TokenizeFailed
from inference.models import ApiKey, GenerationJob
from inference.openai import chat_template, errors
from inference.openai.errors import ApiError
from inference.openai.parameters import ApiRequest, parse_chat, parse_completion, read_json
from inference.sampling import SEED_LIMIT, SamplingParameters
from inference.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

# How soon a refused client may try again; a queue that is full is not empty a second later.
RETRY_SECONDS = 2
RETRY_FULL_SECONDS = 5
DAY_SECONDS = 24 * 60 * 60

# Of the prompts' tokens. Raises ApiError.
Charge = Callable[[Sequence[Sequence[int]]], object]


@dataclass(frozen=True)
class Accepted:
    """A request whose generations are queued. job_ids: prompt by prompt, `choices` of each; build: who answers."""

    request: ApiRequest
    tokenizer: Tokenizer
    job_ids: tuple[str, ...]
    prompt_tokens: int
    build: str


@lru_cache(maxsize=4)
def _redis(url: str) -> "redis.Redis":
    return redis.Redis.from_url(url)


def store() -> "redis.Redis":
    """The process's connection pool to Redis; raises ApiError when none is configured."""
    if not settings.REDIS_URL:
        raise errors.no_store(RETRY_FULL_SECONDS)
    return _redis(settings.REDIS_URL)


# --- who asks ---------------------------------------------------------------------------------------------------------
def authenticate(authorization: str) -> KeyView:
    """The key in an Authorization header; raises ApiError (401)."""
    scheme, _, key = authorization.strip().partition(" ")
    if scheme.lower() != "bearer" or not key.strip():
        raise errors.missing_key()
    view = api_keys.authenticate(key.strip())
    if view is None:
        raise errors.bad_key()
    return view


def check_rate(key: KeyView) -> None:
    """Counts one request of this key; raises ApiError (429)."""
    limit = settings.API_REQUESTS_PER_MINUTE
    if limit:
        wait = rate_limit.seconds_to_wait(f"key/{key.key_id}", limit)
        if wait:
            raise errors.too_many_requests(limit, wait)


def charge_tokens(key_id: int, request: ApiRequest, prompts: Sequence[Sequence[int]]) -> None:
    """Counts the prompts and the longest answers that the request allows; raises ApiError (429)."""
    limit = settings.API_TOKENS_PER_DAY
    if not limit:
        return
    context = settings.BACKBONE_CONTEXT_TOKENS
    tokens = sum(
        len(prompt) + request.choices * min(request.sampling.max_tokens, context - len(prompt)) for prompt in prompts
    )
    wait = rate_limit.seconds_to_wait(f"key/tokens/{key_id}", limit, amount=tokens, window_seconds=DAY_SECONDS)
    if wait:
        left = rate_limit.left(f"key/tokens/{key_id}", limit, window_seconds=DAY_SECONDS)
        raise errors.too_many_tokens(limit, left, wait)


# --- generating -------------------------------------------------------------------------------------------------------
def accept_completion(authorization: str, body: bytes) -> Accepted:
    """Queues what a body of /v1/completions asks for. Raises ApiError."""
    return _accept(authorization, body, parse_completion)


def accept_chat(authorization: str, body: bytes) -> Accepted:
    """Queues what a body of /v1/chat/completions asks for. Raises ApiError."""
    return _accept(authorization, body, parse_chat)


@contextmanager
def stores_reached() -> Iterator[None]:
    """Turns what Redis and the database raise when they are out of reach into ApiError."""
    try:
        yield
    except redis.RedisError as error:
        logger.warning("an API request found no Redis: %s", error)
        raise errors.no_store(RETRY_FULL_SECONDS) from error
    except OperationalDatabaseError as error:
        logger.warning("an API request found no database: %s", error)
        raise errors.no_database(RETRY_FULL_SECONDS) from error


def _accept(authorization: str, body: bytes, parse: Callable[[dict[str, object]], ApiRequest]) -> Accepted:
    key = authenticate(authorization)
    check_rate(key)
    request = parse(read_json(body))
    return accept(request, key.key_id, partial(charge_tokens, key.key_id, request))


def accept(request: ApiRequest, key_id: int | None, charge: Charge) -> Accepted:
    """Queues a checked request. key_id None: of a page of ours. charge: counts what is asked for, or raises; called
    last, so that who is refused for want of a place, and tries again, has spent nothing. Raises ApiError."""
    model = served_model()
    if request.model != model.name:
        raise errors.unknown_model(request.model[:200])
    prompts = prompt_tokens(request, model)
    build = alive_build()
    job_ids = _create_jobs(model.name, prompts, request, key_id, charge)
    _enqueue_all(job_ids, request.priority)
    return Accepted(request, model, job_ids, sum(map(len, prompts)), build)


def served_model() -> Tokenizer:
    """Raises ApiError when the model's file cannot be used."""
    try:
        return tokenizer.current(settings.MODEL_PATH)
    except ModelNotLoaded as error:
        logger.error("%s", error)
        raise errors.model_unavailable("its file cannot be read") from error


def prompt_tokens(request: ApiRequest, model: Tokenizer) -> list[list[int]]:
    """Each prompt as tokens; raises ApiError when one is empty, too long or not of this vocabulary."""
    param = "messages" if request.messages else "prompt"
    if request.messages:
        special = model.special
        text = chat_template.render(
            model.chat_template, request.messages, bos_token=special.begin, eos_token=special.end
        )
        prompts: Sequence[str | tuple[int, ...]] = [text]
    else:
        prompts = request.prompts
    return [_checked_tokens(param, prompt, model) for prompt in prompts]


def _checked_tokens(param: str, prompt: str | tuple[int, ...], model: Tokenizer) -> list[int]:
    if isinstance(prompt, str):
        try:
            tokens = model.tokens(prompt)
        except TokenizeFailed as error:
            raise errors.bad_value(param, "text that the model's vocabulary can write") from error
    else:
        tokens = list(prompt)
        if max(tokens) >= model.size:
            raise errors.bad_value(param, f"tokens from 0 to {model.size - 1}")
    if not tokens:
        raise errors.bad_value(param, "at least one token long")
    limit = settings.BACKBONE_CONTEXT_TOKENS - 1
    if len(tokens) > limit:
        raise errors.prompt_too_long(param, len(tokens), limit)
    return tokens


def choice_sampling(sampling: SamplingParameters, number: int) -> SamplingParameters:
    """The parameters of choice `number`: with a seed given, each choice has its own, so that they differ."""
    return sampling if sampling.seed is None else replace(sampling, seed=(sampling.seed + number) % SEED_LIMIT)


def alive_build() -> str:
    """The fingerprint that the oldest living backbone serves; raises ApiError when there is none, RedisError."""
    statuses = backbone_status.all_statuses(store())
    if not statuses:
        raise errors.no_backbone(RETRY_FULL_SECONDS)
    return str(statuses[0].get("build", ""))


def _create_jobs(
    model: str, prompts: list[list[int]], request: ApiRequest, key_id: int | None, charge: Charge
) -> tuple[str, ...]:
    samplings = [choice_sampling(request.sampling, number) for number in range(request.choices)]
    wanted = len(prompts) * len(samplings)
    with transaction.atomic():
        if key_id is not None:
            # Requests of one key count one after another, or two could both take the last place.
            ApiKey.objects.select_for_update().get(pk=key_id)
            if jobs.waiting_count(key_id) + wanted > settings.API_OPEN_PER_KEY:
                raise errors.too_many_open(settings.API_OPEN_PER_KEY, RETRY_SECONDS)
        if jobs.waiting_count() + wanted > settings.API_QUEUE_LENGTH:
            raise errors.queue_full(RETRY_FULL_SECONDS)
        charge(prompts)
        created = [
            jobs.create_job(model, prompt, sampling, api_key_id=key_id, priority=request.priority)
            for prompt in prompts
            for sampling in samplings
        ]
    return tuple(str(job.pk) for job in created)


def _enqueue_all(job_ids: Sequence[str], priority: int) -> None:
    try:
        for job_id in job_ids:
            enqueue(job_id, priority)
    except (OperationalError, redis.RedisError) as error:
        for job_id in job_ids:
            give_up(job_id, "the queue cannot be reached")
        raise errors.no_store(RETRY_FULL_SECONDS) from error


def enqueue(job_id: str, priority: int = 0) -> None:
    """By name: importing the task would load the engine. Raises kombu's OperationalError, RedisError."""
    app.send_task(
        "inference.generate",
        args=(job_id,),
        queue=BACKBONE_QUEUE,
        retry=False,
        priority=message_priority(priority),
    )


def give_up(job_id: str, reason: str) -> None:
    """Closes a job that no backbone has taken, so that nobody rescues it."""
    job = GenerationJob.objects.filter(pk=job_id).first()
    if job is not None:
        jobs.finish_job(job, finish="error", generated=0, error=reason)


# --- following and cancelling -----------------------------------------------------------------------------------------
def cancel(job_ids: Sequence[str]) -> None:
    """Asks the backbones to stop; a Redis that does not answer is logged: nobody waits for these answers."""
    try:
        for job_id in job_ids:
            token_stream.request_cancel(store(), job_id)
    except (redis.RedisError, ApiError) as error:
        logger.warning("cannot cancel %s: %s", ", ".join(job_ids), error)


def own_job(authorization: str, job_id: str) -> GenerationJob:
    """A generation that the key in the header asked for; raises ApiError (401, 404)."""
    key = authenticate(authorization)
    check_rate(key)
    try:
        return GenerationJob.objects.get(pk=job_id, api_key_id=key.key_id)
    except (GenerationJob.DoesNotExist, ValidationError) as error:
        raise errors.unknown_generation(job_id[:100]) from error


def has_tokens(job: GenerationJob) -> bool:
    """Whether a reader can still follow this generation: it is open, or its tokens are kept. Raises RedisError."""
    if job.state in jobs.OPEN_STATES:
        return True
    return bool(store().exists(token_stream.stream_key(str(job.pk))))
