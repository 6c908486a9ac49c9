"""inference/openai/parameters.py: what a body may hold is read, refused by name, or known to be without effect."""

from typing import Any

import pytest

from inference.openai.errors import ApiError
from inference.openai.parameters import MAX_CHOICES, ApiRequest, Message, parse_chat, parse_completion, read_json
from inference.sampling import SEED_LIMIT, SamplingParameters

HI = [{"role": "user", "content": "Hi"}]


def completion(**fields: Any) -> ApiRequest:
    return parse_completion({"model": "m", "prompt": "In the", **fields})


def chat(**fields: Any) -> ApiRequest:
    return parse_chat({"model": "m", "messages": HI, **fields})


def test_a_bare_completion_has_openais_defaults() -> None:
    request = completion()

    assert request == ApiRequest("m", SamplingParameters(max_tokens=16), prompts=("In the",))


def test_a_bare_chat_goes_on_as_long_as_the_context_lasts() -> None:
    request = chat()

    assert request.messages == (Message("user", "Hi"),)
    assert request.sampling.max_tokens == 1 << 30
    assert request.prompts == ()


def test_every_sampling_parameter_arrives() -> None:
    request = completion(
        temperature=0.5, top_p=0.9, top_k=7, min_p=0.1, repeat_penalty=1.1, seed=5, stop=["\n", "END"], max_tokens=9,
        logprobs=3, ignore_eos=True, n=2, stream=True, stream_options={"include_usage": True}, background=True,
    )  # fmt: skip

    assert request.sampling == SamplingParameters(0.5, 7, 0.9, 0.1, 1.1, 64, 5, ("\n", "END"), 9, 3, True)
    assert (request.choices, request.stream, request.include_usage, request.background) == (2, True, True, True)


def test_priority_is_a_small_whole_number() -> None:
    body = {"model": "m", "prompt": "x"}

    assert parse_completion(body).priority == 0
    assert parse_completion({**body, "priority": -10}).priority == -10
    with pytest.raises(ApiError, match="priority"):
        parse_completion({**body, "priority": 11})


def test_latency_is_low_or_normal() -> None:
    assert [completion(latency=value).sampling.low_latency for value in (None, "normal", "low")] == [False, False, True]
    with pytest.raises(ApiError, match="latency"):
        completion(latency="high")


def test_null_means_absent() -> None:
    names = ("temperature", "seed", "stop", "n", "stream", "logprobs", "suffix", "best_of", "unheard_of")

    assert completion(**dict.fromkeys(names)) == completion()


def test_whole_numbers_may_come_as_floats_and_seeds_may_be_any_64_bit_number() -> None:
    assert completion(max_tokens=5.0).sampling.max_tokens == 5
    for seed in (-1, -(2**63), 2**63 - 1, SEED_LIMIT):
        found = completion(seed=seed).sampling.seed
        assert found is not None
        assert 0 <= found < SEED_LIMIT


def test_both_names_of_the_token_limit_are_read() -> None:
    assert chat(max_tokens=5).sampling.max_tokens == 5
    assert chat(max_completion_tokens=6).sampling.max_tokens == 6


def test_prompts_are_strings_or_tokens_one_or_several() -> None:
    assert completion(prompt=["a", "b"]).prompts == ("a", "b")
    assert completion(prompt=[1, 2]).prompts == ((1, 2),)
    assert completion(prompt=[[1], [2, 3]]).prompts == ((1,), (2, 3))


def test_text_parts_are_joined_and_a_developer_is_the_system() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]

    request = chat(messages=[{"role": "developer", "content": parts}, {"role": "assistant", "content": "c"}])

    assert request.messages == (Message("system", "ab"), Message("assistant", "c"))


def test_an_answer_of_ours_may_be_sent_back_as_it_is() -> None:
    ours = {"role": "assistant", "content": "Hello", "refusal": None, "tool_calls": None, "name": "bot"}

    assert chat(messages=[*HI, ours]).messages[1] == Message("assistant", "Hello")


def test_chat_logprobs_are_two_parameters() -> None:
    assert chat().sampling.logprobs is None
    assert chat(logprobs=True).sampling.logprobs == 0
    assert chat(logprobs=True, top_logprobs=5).sampling.logprobs == 5


@pytest.mark.parametrize(
    "name",
    ["user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"],
)
def test_what_steers_openais_own_service_has_no_effect(name: str) -> None:
    assert chat(**{name: "x"}) == chat()


@pytest.mark.parametrize(
    "off",
    [
        {"tools": []}, {"tool_choice": "auto"}, {"response_format": {"type": "text"}}, {"modalities": ["text"]},
        {"presence_penalty": 0}, {"frequency_penalty": 0.0}, {"logit_bias": {}}, {"best_of": 1},
        {"parallel_tool_calls": True},
    ],
)  # fmt: skip
def test_what_is_not_supported_may_be_switched_off(off: dict[str, Any]) -> None:
    assert chat(**off) == chat()


WRONG_IN_BOTH: list[tuple[dict[str, Any], str, str]] = [
    ({"model": None}, "model", "missing_required_parameter"),
    ({"model": 7}, "model", "invalid_value"),
    ({"model": ""}, "model", "invalid_value"),
    ({"temperature": -0.1}, "temperature", "invalid_value"),
    ({"temperature": 2.1}, "temperature", "invalid_value"),
    ({"temperature": "hot"}, "temperature", "invalid_value"),
    ({"temperature": True}, "temperature", "invalid_value"),
    ({"temperature": 1e999}, "temperature", "invalid_value"),
    ({"top_p": 1.5}, "top_p", "invalid_value"),
    ({"top_k": 1.5}, "top_k", "invalid_value"),
    ({"min_p": -1}, "min_p", "invalid_value"),
    ({"repeat_penalty": 0}, "repeat_penalty", "invalid_value"),
    ({"seed": "x"}, "seed", "invalid_value"),
    ({"seed": 2**63}, "seed", "invalid_value"),
    ({"stop": [""]}, "stop", "invalid_value"),
    ({"stop": ["x"] * 17}, "stop", "invalid_value"),
    ({"stop": "\0"}, "stop", "invalid_value"),
    ({"stop": "\ud800"}, "stop", "invalid_value"),
    ({"stop": 5}, "stop", "invalid_value"),
    ({"max_tokens": 0}, "max_tokens", "invalid_value"),
    ({"max_completion_tokens": -1}, "max_completion_tokens", "invalid_value"),
    ({"n": 0}, "n", "invalid_value"),
    ({"n": MAX_CHOICES + 1}, "n", "invalid_value"),
    ({"stream": "yes"}, "stream", "invalid_value"),
    ({"stream_options": {"include_usage": True}}, "stream_options", "invalid_value"),
    ({"stream": True, "stream_options": []}, "stream_options", "invalid_value"),
    ({"stream": True, "stream_options": {"x": 1}}, "x", "unknown_parameter"),
    ({"logit_bias": {"5": 1}}, "logit_bias", "unsupported_parameter"),
    ({"presence_penalty": 1}, "presence_penalty", "unsupported_parameter"),
    ({"frequency_penalty": 1}, "frequency_penalty", "unsupported_parameter"),
    ({"best_of": 3}, "best_of", "unsupported_parameter"),
    ({"repetition_penalty": 1.1}, "repetition_penalty", "unknown_parameter"),
]


@pytest.mark.parametrize("parse", [completion, chat])
@pytest.mark.parametrize(("fields", "param", "code"), WRONG_IN_BOTH)
def test_a_wrong_parameter_is_refused_by_name(parse: Any, fields: dict[str, Any], param: str, code: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse(**fields)

    assert (caught.value.status, caught.value.param, caught.value.code) == (400, param, code)


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"prompt": None}, "prompt", "missing_required_parameter"),
        ({"prompt": []}, "prompt", "invalid_value"),
        ({"prompt": [[]]}, "prompt", "invalid_value"),
        ({"prompt": [1, "a"]}, "prompt", "invalid_value"),
        ({"prompt": [-1]}, "prompt", "invalid_value"),
        ({"prompt": [True]}, "prompt", "invalid_value"),
        ({"prompt": {"a": 1}}, "prompt", "invalid_value"),
        ({"prompt": ["a"] * 33}, "prompt", "invalid_value"),
        ({"prompt": ["a"] * 20, "n": 2}, "n", "invalid_value"),
        ({"logprobs": 21}, "logprobs", "invalid_value"),
        ({"logprobs": True}, "logprobs", "invalid_value"),
        ({"echo": True}, "echo", "unsupported_parameter"),
        ({"suffix": "end"}, "suffix", "unsupported_parameter"),
        ({"messages": HI}, "messages", "unknown_parameter"),
    ],
)
def test_a_wrong_completion_is_refused_by_name(fields: dict[str, Any], param: str, code: str) -> None:
    with pytest.raises(ApiError) as caught:
        completion(**fields)

    assert (caught.value.param, caught.value.code) == (param, code)


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"messages": None}, "messages", "missing_required_parameter"),
        ({"messages": []}, "messages", "invalid_value"),
        ({"messages": "Hi"}, "messages", "invalid_value"),
        ({"messages": ["Hi"]}, "messages[0]", "invalid_value"),
        ({"messages": [{"content": "Hi"}]}, "messages[0].role", "invalid_value"),
        ({"messages": [{"role": "tool", "content": "Hi"}]}, "messages[0].role", "invalid_value"),
        ({"messages": [{"role": ["user"], "content": "Hi"}]}, "messages[0].role", "invalid_value"),
        ({"messages": [*HI, {"role": "user"}]}, "messages[1].content", "missing_required_parameter"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content", "invalid_value"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
         "messages[0].content", "unsupported_parameter"),
        ({"messages": [{"role": "assistant", "content": "", "tool_calls": [{}]}]}, "tool_calls",
         "unsupported_parameter"),
        ({"top_logprobs": 2}, "top_logprobs", "invalid_value"),
        ({"logprobs": 3}, "logprobs", "invalid_value"),
        ({"tools": [{}]}, "tools", "unsupported_parameter"),
        ({"tool_choice": "required"}, "tool_choice", "unsupported_parameter"),
        ({"response_format": {"type": "json_object"}}, "response_format", "unsupported_parameter"),
        ({"reasoning_effort": "high"}, "reasoning_effort", "unsupported_parameter"),
        ({"prompt": "x"}, "prompt", "unknown_parameter"),
    ],
)  # fmt: skip
def test_a_wrong_chat_is_refused_by_name(fields: dict[str, Any], param: str, code: str) -> None:
    with pytest.raises(ApiError) as caught:
        chat(**fields)

    assert (caught.value.param, caught.value.code) == (param, code)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"7", b"null", b'{"a": NaN}', b'{"a": Infinity}', b"\xff\xfe", b"[" * 100_000, b'"x"']
)
def test_a_body_that_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        read_json(body)

    assert (caught.value.status, caught.value.code) == (400, "invalid_json")


def test_an_error_has_openais_shape() -> None:
    with pytest.raises(ApiError) as caught:
        completion(top_p=2)

    assert caught.value.body() == {
        "error": {
            "message": "Invalid value for 'top_p': it must be a number from 0 to 1.",
            "type": "invalid_request_error",
            "param": "top_p",
            "code": "invalid_value",
        }
    }
