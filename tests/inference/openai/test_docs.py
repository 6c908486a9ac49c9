"""docs/api.md names every address, parameter and error code of the API and the pages."""

import inspect
import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from django.conf import settings
from django.urls import URLPattern, URLResolver

from frontend import urls as page_urls
from inference.openai import errors, parameters
from inference.openai import urls as api_urls
from inference.openai.errors import ApiError
from inference.openai.parameters import Fields, parse_chat, parse_completion


@pytest.fixture(scope="module")
def page() -> str:
    return (settings.BASE_DIR / "docs" / "api.md").read_text()


def addresses(prefix: str, patterns: Iterable[URLPattern | URLResolver]) -> Iterator[str]:
    """Those that have a name; values in them are X. The operator's pages are in docs/operator.md, by their names."""
    for pattern in patterns:
        address = prefix + re.sub(r"<[^>]+>", "X", str(pattern.pattern))
        if isinstance(pattern, URLResolver):
            if address != "/operator/":
                yield from addresses(address, pattern.url_patterns)
        elif pattern.name is not None:
            yield address


def test_every_address_is_listed(page: str) -> None:
    listed = re.sub(r"[A-Z]{2,}", "X", page)  # /v1/models/NAME -> /v1/models/X

    patterns = [*addresses("/v1/", api_urls.urlpatterns), *addresses("/", page_urls.urlpatterns)]
    missing = [address for address in patterns if f" {address}`" not in listed and f" {address}?" not in listed]

    assert missing == []


def test_every_error_code_is_listed(page: str) -> None:
    source = inspect.getsource(errors)
    codes = set(re.findall(r'code="([a-z_]+)"', source))

    assert len(codes) > 15
    assert sorted(code for code in codes if f"`{code}`" not in page) == []


def test_every_parameter_is_listed(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[str] = set(parameters.WITHOUT_EFFECT)
    real = Fields.take

    def take(self: Fields, name: str, default: Any = None) -> Any:
        asked.add(name)
        return real(self, name, default)

    monkeypatch.setattr(Fields, "take", take)
    parse_completion({"model": "m", "prompt": "x", "seed": 1, "max_tokens": 1, "logprobs": 1})
    parse_chat({"model": "m", "messages": [{"role": "user", "content": "x"}]})
    inside_messages = {"tool_calls", "refusal"}

    assert sorted(name for name in asked - inside_messages if not re.search(rf"`{name}[`.]", page)) == []


def test_a_code_has_one_status() -> None:
    made = [
        errors.bad_json("x"), errors.body_too_large(1), errors.bad_method("GET", "POST"), errors.unknown_address("/"),
        errors.missing("x"), errors.bad_value("x", "y"), errors.unknown_parameter("x"), errors.unsupported("x", "y"),
        errors.unknown_model("x"), errors.unknown_generation("x"), errors.tokens_gone("x"),
        errors.prompt_too_long("x", 2, 1), errors.missing_key(), errors.bad_key(), errors.too_many_requests(1, 1),
        errors.too_many_open(1, 1), errors.too_many_tokens(1, 0, 1), errors.queue_full(1),
        errors.no_backbone(1), errors.no_store(1), errors.no_database(1),
        errors.model_unavailable("x"), errors.no_progress(1), errors.internal(),
        errors.generation_failed("x"), errors.generation_failed("prompt_too_long: x"),
        errors.generation_failed("bad_parameter: x"),
    ]  # fmt: skip
    statuses: dict[str | None, set[int]] = {}
    for error in made:
        statuses.setdefault(error.code, set()).add(error.status)

    assert all(isinstance(error, ApiError) for error in made)
    assert {code: found for code, found in statuses.items() if len(found) > 1} == {}
