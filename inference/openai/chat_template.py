"""The text of a conversation, by the Jinja template that the model's file carries. Pure.

A template comes with a model that somebody downloaded: it runs in Jinja's sandbox, without loader, modules or the
means to change what it is given. Names follow `apply_chat_template` of Hugging Face's transformers, for which
templates are written.
"""

import json
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from inference.openai.errors import ApiError, bad_value
from inference.openai.parameters import Message

# For a file without a template (base models): a dialogue as prose has it, one line per turn.
FALLBACK_TEMPLATE = (
    "{% for message in messages %}{{ message.role | capitalize }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
TEXT_LIMIT = 4 << 20


class _Refused(jinja2.TemplateError):
    """The template called raise_exception: it does not take this conversation."""


def _raise_exception(message: str) -> NoReturn:
    raise _Refused(message)


def _to_json(value: Any, indent: int | None = None, ensure_ascii: bool = False) -> str:
    """Jinja's own filter escapes HTML, which a prompt must not."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda pattern: datetime.now().strftime(str(pattern))
    return environment


@lru_cache(maxsize=8)
def _compiled(template: str) -> jinja2.Template:
    return _environment().from_string(template)


def render(template: str | None, messages: Sequence[Message], *, bos_token: str = "", eos_token: str = "") -> str:
    """The prompt of a conversation, ending where the assistant's answer begins.

    Raises ApiError: 400 when the template refuses the conversation, 500 when the template itself is broken.
    """
    plain = [{"role": message.role, "content": message.content} for message in messages]
    try:
        text = _compiled(template or FALLBACK_TEMPLATE).render(
            messages=plain, add_generation_prompt=True, bos_token=bos_token, eos_token=eos_token, tools=None
        )
    except _Refused as error:
        raise bad_value("messages", f"a conversation that the model's template takes ({error})") from error
    except Exception as error:  # a template is a program: it may fail in every way
        raise ApiError(
            500,
            f"The model's chat template failed ({type(error).__name__}: {error}); use /v1/completions.",
            code="chat_template_failed",
            kind="server_error",
        ) from error
    if len(text) > TEXT_LIMIT:
        raise bad_value("messages", f"at most {TEXT_LIMIT} characters long")
    return text
