from dataclasses import replace

import pytest

from inference.errors import BadParameter, PromptTooLong
from inference.generation import NO_TOKEN, Generation, GenerationRequest, TokenEvent, check_request
from inference.sampling import SamplingParameters
from tests.inference.models import END_OF_TURN, demo_model, tokens_of
from tests.refusal import refusal

PROMPT = tokens_of("In the beginning")
REQUEST = GenerationRequest("alice", PROMPT, SamplingParameters(max_tokens=5, stop=("heaven",)))


def generation_of(request: GenerationRequest, events: list[TokenEvent] | None = None) -> Generation:
    listener = events.append if events is not None else lambda event: None
    return Generation(request, listener, demo_model().vocabulary, context_tokens=64)


def test_it_accepts_the_longest_prompt_that_leaves_room_for_one_token() -> None:
    longest = replace(REQUEST, prompt=PROMPT[:1] * 63)

    assert refusal(PromptTooLong, check_request, longest, vocabulary_size=4096, context_tokens=64) is None


def test_it_refuses_a_prompt_that_fills_the_context_and_names_both_numbers() -> None:
    with pytest.raises(PromptTooLong) as caught:
        check_request(replace(REQUEST, prompt=PROMPT[:1] * 64), vocabulary_size=4096, context_tokens=64)

    assert (caught.value.prompt_tokens, caught.value.limit) == (64, 63)
    assert "64 tokens, at most 63" in str(caught.value)


@pytest.mark.parametrize("tokens", [(), (-1,), (4096,)])
def test_it_refuses_tokens_that_the_model_does_not_have(tokens: tuple[int, ...]) -> None:
    with pytest.raises(BadParameter, match="tokens"):
        check_request(replace(REQUEST, prompt=tokens), vocabulary_size=4096, context_tokens=64)


def test_it_refuses_resumed_tokens_that_the_model_does_not_have() -> None:
    with pytest.raises(BadParameter, match="tokens"):
        check_request(replace(REQUEST, resumed=(4096,)), vocabulary_size=4096, context_tokens=64)


@pytest.mark.parametrize(
    ("resumed", "finish"),
    [
        ((), None),
        (PROMPT[:1] * 4, None),
        (PROMPT[:1] * 5, "length"),
        ((PROMPT[0], END_OF_TURN), "stop"),
        (tokens_of("the heaven and"), "stop"),
    ],
)
def test_it_knows_whether_the_resumed_tokens_are_the_whole_answer(resumed: tuple[int, ...], finish: str | None) -> None:
    assert generation_of(replace(REQUEST, resumed=resumed)).already_complete() == finish


def test_the_context_s_end_limits_an_answer_too() -> None:
    generation = generation_of(replace(REQUEST, prompt=PROMPT[:1] * 62, resumed=PROMPT[:1] * 2))

    assert generation.already_complete() == "length"


def test_a_resumed_answer_ends_with_the_text_that_was_withheld() -> None:
    generation = generation_of(replace(REQUEST, resumed=tokens_of("x heav")))

    event = generation.last_event("length")

    assert (event.index, event.token, event.text) == (len(tokens_of("x heav")), NO_TOKEN, "heav")


def test_a_failing_listener_only_loses_its_own_request(caplog: pytest.LogCaptureFixture) -> None:
    def fail(event: TokenEvent) -> None:
        raise RuntimeError("Mallory's listener")

    generation = Generation(REQUEST, fail, demo_model().vocabulary, context_tokens=64)

    generation.tell(TokenEvent(0, 1, "a"))

    assert generation.cancelled
    assert "alice" in caplog.text
