"""The playground's form as a request of the OpenAI API: what is sent, and the same as curl and Python to copy.

The form is read leniently (an empty field is left out) and judged by the API's own checks, so that the page can do
nothing that the API cannot, and says the same words about it. Pure.
"""

import json
import pprint
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from inference.openai import errors
from inference.openai.parameters import ApiRequest, parse_chat, parse_completion

PROMPT_LIMIT = 4000
HISTORY_LIMIT = 40_000
EXAMPLE = "In the beginning"
ALTERNATIVES = 5
CHAT, COMPLETION = "chat", "completion"
# name, default, least, most, step: the number fields of the page, in their order.
NUMBERS: tuple[tuple[str, str, str, str, str], ...] = (
    ("max_tokens", "96", "1", "", "1"),
    ("temperature", "0.8", "0", "2", "0.05"),
    ("top_p", "1", "0", "1", "0.01"),
    ("top_k", "40", "0", "", "1"),
    ("min_p", "0", "0", "1", "0.01"),
    ("repeat_penalty", "1", "0.01", "", "0.01"),
    ("seed", "", "0", "", "1"),
)
WHOLE = {"max_tokens", "top_k", "seed"}
KEY_VARIABLE = "EXPERTSWARM_KEY"


@dataclass(frozen=True)
class RequestForm:
    """What was typed. history: earlier messages of the conversation, oldest first; values: texts of NUMBERS."""

    mode: str
    prompt: str
    system: str
    stop: str
    values: Mapping[str, str]
    history: tuple[dict[str, str], ...] = ()
    probabilities: bool = True

    @property
    def is_chat(self) -> bool:
        return self.mode == CHAT

    @property
    def history_json(self) -> str:
        return json.dumps(self.history, ensure_ascii=False)

    def messages(self) -> list[dict[str, str]]:
        first = [{"role": "system", "content": self.system}] if self.system.strip() else []
        return [*first, *self.history, {"role": "user", "content": self.prompt}]

    def body(self, model: str) -> dict[str, Any]:
        """The body for /v1/completions or /v1/chat/completions. Raises ApiError for a number that is none."""
        asked = {"messages": self.messages()} if self.is_chat else {"prompt": self.prompt}
        body: dict[str, Any] = {"model": model, **asked}
        for name, *_ in NUMBERS:
            if text := self.values.get(name, "").strip():
                body[name] = _number(name, text)
        if self.stop:
            body["stop"] = self.stop
        return body

    def request(self, model: str) -> ApiRequest:
        """Checked by the API's own rules; raises ApiError."""
        if not self.prompt.strip() or len(self.prompt) > PROMPT_LIMIT:
            raise errors.bad_value("prompt", f"a text of at most {PROMPT_LIMIT} characters")
        body = self.body(model)
        if self.is_chat:
            alternatives = ALTERNATIVES if self.probabilities else 0
            request = parse_chat({**body, "logprobs": self.probabilities, "top_logprobs": alternatives})
        else:
            request = parse_completion({**body, "logprobs": ALTERNATIVES if self.probabilities else None})
        return replace(request, sampling=replace(request.sampling, places=True))


def _number(name: str, text: str) -> int | float:
    try:
        return int(text) if name in WHOLE else float(text)
    except ValueError:
        raise errors.bad_value(name, "a number") from None


def empty_form(mode: str = COMPLETION) -> RequestForm:
    defaults = {name: default for name, default, *_ in NUMBERS}
    return RequestForm(_mode(mode), EXAMPLE if mode != CHAT else "", "", "", defaults)


def read_form(posted: Mapping[str, str]) -> RequestForm:
    """The form as it was sent. Raises ApiError when the conversation in it is not one of ours."""
    return RequestForm(
        mode=_mode(posted.get("mode", "")),
        prompt=posted.get("prompt", ""),
        system=posted.get("system", ""),
        stop=posted.get("stop", ""),
        values={name: posted.get(name, default)[:40] for name, default, *_ in NUMBERS},
        history=_history(posted.get("history", "")) if posted.get("mode") == CHAT else (),
        probabilities="probabilities" in posted,
    )


def _mode(text: str) -> str:
    return CHAT if text == CHAT else COMPLETION


def _history(text: str) -> tuple[dict[str, str], ...]:
    """Messages that the page itself wrote into its hidden field; a visitor may have changed them."""
    wrong = errors.bad_value("history", "the conversation as the page sends it")
    if len(text) > HISTORY_LIMIT:
        raise wrong
    try:
        found = json.loads(text or "[]")
    except (ValueError, RecursionError):
        raise wrong from None
    if not isinstance(found, list):
        raise wrong
    for message in found:
        if not isinstance(message, dict) or message.keys() != {"role", "content"}:
            raise wrong
        if message["role"] not in ("user", "assistant") or not isinstance(message["content"], str):
            raise wrong
    return tuple(found)


def as_curl(form: RequestForm, model: str, server_url: str) -> str:
    """The command for a shell; the key stands in the variable KEY_VARIABLE. Raises ApiError."""
    body = json.dumps({**form.body(model), "stream": True}, ensure_ascii=False)
    path = "chat/completions" if form.is_chat else "completions"
    return (
        f"curl --no-buffer {server_url.rstrip('/')}/v1/{path} \\\n"
        f'    -H "Authorization: Bearer ${KEY_VARIABLE}" -H "Content-Type: application/json" \\\n'
        f"    -d {shlex.quote(body)}"
    )


def as_python(form: RequestForm, model: str, server_url: str) -> str:
    """The same with OpenAI's client; parameters that it does not know go into extra_body. Raises ApiError."""
    body = form.body(model)
    extra = {name: body.pop(name) for name in ("top_k", "min_p", "repeat_penalty") if name in body}
    lines = [f"    {name}={pprint.pformat(value, width=100, sort_dicts=False)}," for name, value in body.items()]
    lines += [f"    extra_body={extra!r},"] if extra else []
    call = "chat.completions" if form.is_chat else "completions"
    text = "chunk.choices[0].delta.content or ''" if form.is_chat else "chunk.choices[0].text"
    return "\n".join(
        [
            "from os import environ",
            "",
            "import openai",
            "",
            f'client = openai.OpenAI(base_url="{server_url.rstrip("/")}/v1", api_key=environ["{KEY_VARIABLE}"])',
            f"stream = client.{call}.create(",
            *lines,
            "    stream=True,",
            ")",
            "for chunk in stream:",
            "    if chunk.choices:",
            f"        print({text}, end='', flush=True)",
        ]
    )
