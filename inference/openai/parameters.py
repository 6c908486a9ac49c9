"""What a request asks for, read from its JSON body and checked whole before anything else happens. Pure.

Unknown parameters are refused by name, as OpenAI does; those that this server cannot honour are refused unless they
have the value that means "off". null means absent. docs/api.md lists every parameter and its default.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from inference.errors import BadParameter
from inference.openai import errors
from inference.sampling import MAX_STOP_BYTES, MAX_STOP_STRINGS, MAX_TOP_LOGPROBS, SEED_LIMIT, SamplingParameters

# Prompts times `n` of one request.
MAX_CHOICES = 32
MAX_MESSAGES = 4096
MAX_PRIORITY = 10
# "As long as it fits": the engine ends an answer where the context ends.
UNLIMITED_TOKENS = 1 << 30
DEFAULT_COMPLETION_TOKENS = 16
MAX_TOKEN_ID = (1 << 31) - 1
# OpenAI renamed `system` to `developer`; chat templates know the old name.
ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
# Accepted and without effect here: they steer billing, caching and logging of OpenAI's own service.
WITHOUT_EFFECT = (
    "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
)  # fmt: skip

Prompt = str | tuple[int, ...]


@dataclass(frozen=True)
class Message:
    role: str
    content: str


@dataclass(frozen=True)
class ApiRequest:
    """A checked request. Of `prompts` (completions) and `messages` (chat) one is empty.

    choices: answers per prompt; background: the answer goes on when its reader leaves; priority: see docs/api.md.
    """

    model: str
    sampling: SamplingParameters
    choices: int = 1
    stream: bool = False
    include_usage: bool = False
    background: bool = False
    priority: int = 0
    prompts: tuple[Prompt, ...] = ()
    messages: tuple[Message, ...] = ()


def read_json(body: bytes) -> dict[str, Any]:
    """The JSON object of a body; raises ApiError."""
    try:
        value = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise errors.bad_json(str(error) or "it is nested too deeply") from None
    if not isinstance(value, dict):
        raise errors.bad_json(f"it is a {type(value).__name__}")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


class Fields:
    """Takes parameters out of a body one by one; what is left at the end is unknown. Every method raises ApiError."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self._left = {name: value for name, value in body.items() if value is not None}

    def take(self, name: str, default: Any = None) -> Any:
        return self._left.pop(name, default)

    def has(self, name: str) -> bool:
        return name in self._left

    def number(self, name: str, default: float, low: float, high: float) -> float:
        value = self.take(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise errors.bad_value(name, f"a number from {low:g} to {high:g}")
        return float(value)

    def integer(self, name: str, default: int, low: int, high: int) -> int:
        value = self.take(name, default)
        if isinstance(value, float) and math.isfinite(value) and value.is_integer():
            value = int(value)  # some languages write every number as a float: 1.0 is 1
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise errors.bad_value(name, f"an integer from {low} to {high}")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.take(name, default)
        if not isinstance(value, bool):
            raise errors.bad_value(name, "true or false")
        return value

    def model(self) -> str:
        if not self.has("model"):
            raise errors.missing("model")
        value = self.take("model")
        if not isinstance(value, str) or not value:
            raise errors.bad_value("model", "the name of a model")
        return value

    def refuse(self, name: str, advice: str, *, unless: Callable[[Any], bool]) -> None:
        """Refuses a parameter that is not supported, unless its value means "off"."""
        value = self.take(name)
        if value is not None and not unless(value):
            raise errors.unsupported(name, advice)

    def end(self) -> None:
        for name in WITHOUT_EFFECT:
            self.take(name)
        for name in self._left:
            raise errors.unknown_parameter(str(name)[:100])


def parse_completion(body: Mapping[str, Any]) -> ApiRequest:
    """Reads the body of /v1/completions; raises ApiError."""
    fields = Fields(body)
    model = fields.model()
    if not fields.has("prompt"):
        raise errors.missing("prompt")
    prompts = _prompts(fields.take("prompt"))
    logprobs = fields.integer("logprobs", 0, 0, MAX_TOP_LOGPROBS) if fields.has("logprobs") else None
    fields.refuse("echo", "the prompt is not repeated in the answer", unless=lambda value: value is False)
    fields.refuse("suffix", "text can be continued, not filled in", unless=lambda value: value == "")
    return _finish(fields, model, logprobs, DEFAULT_COMPLETION_TOKENS, prompts=prompts)


def parse_chat(body: Mapping[str, Any]) -> ApiRequest:
    """Reads the body of /v1/chat/completions; raises ApiError."""
    fields = Fields(body)
    model = fields.model()
    if not fields.has("messages"):
        raise errors.missing("messages")
    messages = _messages(fields.take("messages"))
    wanted = fields.flag("logprobs")
    top = fields.integer("top_logprobs", 0, 0, MAX_TOP_LOGPROBS)
    if top and not wanted:
        raise errors.bad_value("top_logprobs", "used together with logprobs: true")
    for name in ("tools", "functions"):
        fields.refuse(name, "the model calls no tools", unless=lambda value: value == [])
    for name in ("tool_choice", "function_call"):
        fields.refuse(name, "the model calls no tools", unless=lambda value: value in ("none", "auto"))
    fields.refuse("parallel_tool_calls", "the model calls no tools", unless=lambda value: isinstance(value, bool))
    fields.refuse("response_format", "answers are plain text", unless=lambda value: value == {"type": "text"})
    fields.refuse("modalities", "answers are plain text", unless=lambda value: value == ["text"])
    for name in ("audio", "prediction", "web_search_options", "reasoning_effort", "verbosity"):
        fields.refuse(name, "leave it out", unless=lambda value: False)
    return _finish(fields, model, top if wanted else None, UNLIMITED_TOKENS, messages=messages)


def _finish(
    fields: Fields,
    model: str,
    logprobs: int | None,
    default_tokens: int,
    *,
    prompts: tuple[Prompt, ...] = (),
    messages: tuple[Message, ...] = (),
) -> ApiRequest:
    """Reads what both kinds of request share."""
    stream = fields.flag("stream")
    include_usage = _include_usage(fields.take("stream_options"), stream)
    choices = fields.integer("n", 1, 1, MAX_CHOICES)
    if choices * max(1, len(prompts)) > MAX_CHOICES:
        raise errors.bad_value("n", f"such that prompts times n is at most {MAX_CHOICES}")
    fields.refuse("best_of", "leave it out", unless=lambda value: value == choices)
    fields.refuse("logit_bias", "leave it out", unless=lambda value: value == {})
    for name in ("presence_penalty", "frequency_penalty"):
        fields.refuse(name, "use repeat_penalty", unless=lambda value: value == 0)
    request = ApiRequest(
        model=model,
        sampling=_sampling(fields, logprobs, default_tokens),
        choices=choices,
        stream=stream,
        include_usage=include_usage,
        background=fields.flag("background"),
        priority=fields.integer("priority", 0, -MAX_PRIORITY, MAX_PRIORITY),
        prompts=prompts,
        messages=messages,
    )
    fields.end()
    return request


def _sampling(fields: Fields, logprobs: int | None, default_tokens: int) -> SamplingParameters:
    default = SamplingParameters()
    seed = fields.integer("seed", 0, -(1 << 63), (1 << 63) - 1) % SEED_LIMIT if fields.has("seed") else None
    sampling = SamplingParameters(
        temperature=fields.number("temperature", default.temperature, 0.0, 2.0),
        top_p=fields.number("top_p", default.top_p, 0.0, 1.0),
        top_k=fields.integer("top_k", default.top_k, -1, 1 << 30),
        min_p=fields.number("min_p", default.min_p, 0.0, 1.0),
        repeat_penalty=fields.number("repeat_penalty", default.repeat_penalty, 0.01, 100.0),
        seed=seed,
        stop=_stop(fields.take("stop")),
        max_tokens=_max_tokens(fields, default_tokens),
        logprobs=logprobs,
        ignore_eos=fields.flag("ignore_eos"),
        low_latency=_is_low_latency(fields.take("latency")),
    )
    try:
        sampling.validate()
    except BadParameter as error:  # a bound that is narrower there than here
        raise errors.ApiError(400, str(error), code="invalid_value") from error
    return sampling


def _is_low_latency(value: Any) -> bool:
    if value not in (None, "low", "normal"):
        raise errors.bad_value("latency", '"low" or "normal"')
    return bool(value == "low")


def _max_tokens(fields: Fields, default: int) -> int:
    old = fields.integer("max_tokens", default, 1, UNLIMITED_TOKENS) if fields.has("max_tokens") else None
    new = fields.integer("max_completion_tokens", default, 1, UNLIMITED_TOKENS)
    return new if old is None else old


def _include_usage(options: Any, stream: bool) -> bool:
    if options is None:
        return False
    if not stream or not isinstance(options, dict):
        raise errors.bad_value("stream_options", "an object, used together with stream: true")
    fields = Fields(options)
    include_usage = fields.flag("include_usage")
    fields.flag("include_obfuscation")
    fields.end()
    return include_usage


def _stop(value: Any) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else value or []
    # Databases refuse NUL and lone surrogates; no model writes them either.
    if (
        not isinstance(stops, list)
        or len(stops) > MAX_STOP_STRINGS
        or not all(isinstance(stop, str) and _is_storable(stop) and 1 <= len(stop.encode()) <= MAX_STOP_BYTES
                   for stop in stops)
    ):  # fmt: skip
        raise errors.bad_value("stop", f"a string or up to {MAX_STOP_STRINGS} strings of 1 to {MAX_STOP_BYTES} bytes")
    return tuple(stops)


def _is_storable(text: str) -> bool:
    return "\0" not in text and not any(0xD800 <= ord(character) <= 0xDFFF for character in text)


def _prompts(value: Any) -> tuple[Prompt, ...]:
    """A string, a list of strings, a list of token ids or a list of such lists; each entry is one prompt."""
    if isinstance(value, str):
        return (value,)
    if _is_tokens(value):
        return (tuple(value),)
    wrong = errors.bad_value("prompt", "a string, a list of strings, a list of token ids or a list of such lists")
    if not isinstance(value, list) or not value:
        raise wrong
    if len(value) > MAX_CHOICES:
        raise errors.bad_value("prompt", f"at most {MAX_CHOICES} prompts")
    if not all(isinstance(prompt, str) or _is_tokens(prompt) for prompt in value):
        raise wrong
    return tuple(prompt if isinstance(prompt, str) else tuple(prompt) for prompt in value)


def _is_tokens(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(type(token) is int and 0 <= token <= MAX_TOKEN_ID for token in value)
    )


def _messages(value: Any) -> tuple[Message, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_MESSAGES:
        raise errors.bad_value("messages", f"a list of 1 to {MAX_MESSAGES} messages")
    return tuple(_message(f"messages[{index}]", message) for index, message in enumerate(value))


def _message(where: str, message: Any) -> Message:
    if not isinstance(message, dict):
        raise errors.bad_value(where, "an object with role and content")
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise errors.bad_value(f"{where}.role", f"one of {', '.join(ROLES)}")
    fields = Fields({name: value for name, value in message.items() if name not in ("role", "content", "name")})
    fields.refuse("tool_calls", "the model calls no tools", unless=lambda value: value == [])
    fields.take("refusal")  # what our own answers carry: a client may send them back as they are
    fields.end()
    return Message(ROLES[role], _content(f"{where}.content", message.get("content")))


def _content(where: str, content: Any) -> str:
    """Text, or a list of text parts."""
    if content is None:
        raise errors.missing(where)
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise errors.bad_value(where, "text or a list of text parts")
    texts = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise errors.unsupported(where, "the model reads text only; every part must be {type: text, text: ...}")
        texts.append(part["text"])
    return "".join(texts)
