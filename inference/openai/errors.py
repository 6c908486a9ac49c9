"""Errors as OpenAI's clients expect them: `{"error": {"message", "type", "param", "code"}}` and a status. Pure.

Each function makes one kind of error; `code` is part of the interface.
"""

from typing import Any

INVALID = "invalid_request_error"
LIMIT = "rate_limit_error"
SERVER = "server_error"


class ApiError(Exception):
    """What a request is refused with. retry_after_seconds: becomes the header Retry-After."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None,
        param: str | None = None,
        kind: str = INVALID,
        retry_after_seconds: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.param, self.kind = status, code, param, kind
        self.retry_after_seconds = retry_after_seconds

    def body(self) -> dict[str, Any]:
        return {"error": {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}}


# --- the request itself -----------------------------------------------------------------------------------------------
def bad_json(reason: str) -> ApiError:
    return ApiError(400, f"The body is not a JSON object: {reason}.", code="invalid_json")


def body_too_large(limit_bytes: int) -> ApiError:
    return ApiError(413, f"The body may have at most {limit_bytes} bytes.", code="request_too_large")


def bad_method(method: str, allowed: str) -> ApiError:
    return ApiError(405, f"Not allowed to {method} here: use {allowed}.", code="method_not_allowed")


def unknown_address(path: str) -> ApiError:
    return ApiError(404, f"Unknown address {path}: docs/api.md lists them.", code="unknown_url")


def missing(param: str) -> ApiError:
    return ApiError(400, f"Missing required parameter: '{param}'.", param=param, code="missing_required_parameter")


def bad_value(param: str, expected: str) -> ApiError:
    return ApiError(400, f"Invalid value for '{param}': it must be {expected}.", param=param, code="invalid_value")


def unknown_parameter(param: str) -> ApiError:
    return ApiError(400, f"Unrecognized request argument supplied: {param}", param=param, code="unknown_parameter")


def unsupported(param: str, advice: str) -> ApiError:
    return ApiError(
        400, f"'{param}' is not supported by this server: {advice}.", param=param, code="unsupported_parameter"
    )


def unknown_model(model: str) -> ApiError:
    return ApiError(
        404,
        f"The model '{model}' does not exist on this server; GET /v1/models lists what does.",
        param="model",
        code="model_not_found",
    )


def unknown_generation(generation_id: str) -> ApiError:
    return ApiError(404, f"No generation '{generation_id}' of this key.", param="id", code="generation_not_found")


def tokens_gone(generation_id: str) -> ApiError:
    return ApiError(
        410, f"The tokens of generation '{generation_id}' are no longer kept.", param="id", code="generation_gone"
    )


def prompt_too_long(param: str, prompt_tokens: int, limit: int) -> ApiError:
    return ApiError(
        400,
        f"This model's maximum prompt length is {limit} tokens, yours has {prompt_tokens}. Shorten it.",
        param=param,
        code="context_length_exceeded",
    )


# --- who asks ---------------------------------------------------------------------------------------------------------
def missing_key() -> ApiError:
    return ApiError(
        401,
        "You didn't provide an API key. Send it as `Authorization: Bearer sk-es-...`; `manage.py apikey create` makes "
        "one.",
        code="invalid_api_key",
    )


def bad_key() -> ApiError:
    return ApiError(401, "Incorrect API key provided: it is unknown or revoked.", code="invalid_api_key")


# --- limits -----------------------------------------------------------------------------------------------------------
def too_many_requests(limit: int, retry_after_seconds: int) -> ApiError:
    return ApiError(
        429,
        f"Rate limit reached: {limit} requests per minute. Try again in {retry_after_seconds} s.",
        code="rate_limit_exceeded",
        kind=LIMIT,
        retry_after_seconds=retry_after_seconds,
    )


def too_many_tokens(limit: int, left: int, retry_after_seconds: int) -> ApiError:
    return ApiError(
        429,
        f"This key may ask for {limit} tokens per day, prompts and longest answers together; {left} are left.",
        code="rate_limit_exceeded",
        kind=LIMIT,
        retry_after_seconds=retry_after_seconds,
    )


def too_many_open(limit: int, retry_after_seconds: int) -> ApiError:
    return ApiError(
        429,
        f"Rate limit reached: this key may have {limit} answers open at once. Wait for one to end.",
        code="rate_limit_exceeded",
        kind=LIMIT,
        retry_after_seconds=retry_after_seconds,
    )


def queue_full(retry_after_seconds: int) -> ApiError:
    return ApiError(
        429,
        f"The server's queue is full. Try again in {retry_after_seconds} s.",
        code="queue_full",
        kind=LIMIT,
        retry_after_seconds=retry_after_seconds,
    )


# --- ourselves --------------------------------------------------------------------------------------------------------
def no_backbone(retry_after_seconds: int) -> ApiError:
    return ApiError(
        503,
        "No backbone is running, so nothing can be generated now. Try again shortly.",
        code="no_backbone",
        kind=SERVER,
        retry_after_seconds=retry_after_seconds,
    )


def no_store(retry_after_seconds: int) -> ApiError:
    return ApiError(
        503,
        "The server cannot reach its queue. Try again shortly.",
        code="queue_unreachable",
        kind=SERVER,
        retry_after_seconds=retry_after_seconds,
    )


def no_database(retry_after_seconds: int) -> ApiError:
    return ApiError(
        503,
        "The server cannot use its database now. Try again shortly.",
        code="database_unreachable",
        kind=SERVER,
        retry_after_seconds=retry_after_seconds,
    )


def model_unavailable(reason: str) -> ApiError:
    return ApiError(503, f"The model cannot be used: {reason}", code="model_unavailable", kind=SERVER)


def no_progress(seconds: float) -> ApiError:
    return ApiError(
        504, f"No token came for {seconds:g} s; the answer was given up.", code="generation_timeout", kind=SERVER
    )


def internal() -> ApiError:
    return ApiError(500, "The server failed; its log tells why.", code="internal_error", kind=SERVER)


def generation_failed(reason: str) -> ApiError:
    """The error that a generation ended with, written by a backbone as `code: message`."""
    code, _, message = reason.partition(": ")
    if code == "prompt_too_long":
        return ApiError(400, message, param="prompt", code="context_length_exceeded")
    if code == "bad_parameter":
        return ApiError(400, message, code="invalid_value")
    return ApiError(500, f"The generation failed: {reason or 'no reason given'}", code="generation_failed", kind=SERVER)
