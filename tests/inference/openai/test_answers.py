"""inference/openai/answers.py: the shapes of both endpoints, log-probabilities and usage."""

import pytest

from inference.openai.answers import Chat, Choice, Completion, LogProbabilities, new_head, usage
from inference.token_stream import StreamedToken

END = 9
PIECES = {1: b"In", 2: b" the", 3: "é".encode()[:1], END: b""}
IN = StreamedToken(1, 0, 1, "In", logprob=-0.5, top=((1, "In", -0.5), (2, " the", -1.5)))
THE = StreamedToken(1, 1, 2, " the", logprob=-0.25, top=((2, " the", -0.25), (1, "In", -2.0)))
STOP = StreamedToken(1, 2, END, "", "stop", logprob=-0.1, top=((END, "", -0.1), (1, "In", -3.0)))


@pytest.fixture
def logprobs() -> LogProbabilities:
    return LogProbabilities(PIECES.__getitem__, frozenset({END}))


def choice(*tokens: StreamedToken) -> Choice:
    made = Choice(0)
    for token in tokens:
        made.add(token)
    return made


def test_a_completion_is_text() -> None:
    assert Completion(None).answer(choice(IN, THE, STOP)) == {
        "text": "In the", "index": 0, "logprobs": None, "finish_reason": "stop",
    }  # fmt: skip


def test_a_chat_answer_is_a_message() -> None:
    assert Chat(None).answer(choice(IN, THE, STOP)) == {
        "index": 0,
        "message": {"role": "assistant", "content": "In the", "refusal": None},
        "logprobs": None,
        "finish_reason": "stop",
    }


def test_completion_logprobs_are_parallel_lists_without_the_end_mark(logprobs: LogProbabilities) -> None:
    assert Completion(logprobs).answer(choice(IN, THE, STOP))["logprobs"] == {
        "tokens": ["In", " the"],
        "token_logprobs": [-0.5, -0.25],
        "top_logprobs": [{"In": -0.5, " the": -1.5}, {" the": -0.25, "In": -2.0}],
        "text_offset": [0, 2],
    }


def test_chat_logprobs_are_entries_with_bytes(logprobs: LogProbabilities) -> None:
    half = StreamedToken(1, 0, 3, "", logprob=-1.0)

    found = Chat(logprobs).answer(choice(half, STOP))["logprobs"]

    assert found == {
        "content": [{"token": "�", "logprob": -1.0, "bytes": [0xC3], "top_logprobs": []}],
        "refusal": None,
    }


def test_two_tokens_with_the_same_text_keep_the_likelier_one(logprobs: LogProbabilities) -> None:
    token = StreamedToken(1, 0, 1, "In", logprob=-0.5, top=((1, "�", -0.5), (2, "�", -1.5)))

    assert Completion(logprobs).answer(choice(token))["logprobs"]["top_logprobs"] == [{"�": -0.5}]


def test_completion_chunks_carry_offsets_of_the_whole_answer(logprobs: LogProbabilities) -> None:
    shape, answer = Completion(logprobs), Choice(0)
    answer.add(IN)
    shape.chunks(answer, [IN])
    answer.add(THE)

    (chunk,) = shape.chunks(answer, [THE])

    assert chunk["text"] == " the"
    assert chunk["logprobs"]["text_offset"] == [2]


def test_tokens_that_come_together_are_one_chunk() -> None:
    answer = choice(IN, THE, STOP)

    assert Completion(None).chunks(answer, [IN, THE, STOP]) == [
        {"text": "In the", "index": 0, "logprobs": None, "finish_reason": "stop"}
    ]


def test_a_chat_ends_with_an_empty_delta() -> None:
    answer = choice(IN, THE, STOP)

    text, end = Chat(None).chunks(answer, [IN, THE, STOP])

    assert (text["delta"], text["finish_reason"]) == ({"content": "In the"}, None)
    assert (end["delta"], end["finish_reason"]) == ({}, "stop")


@pytest.mark.parametrize("shape", [Completion(None), Chat(None)])
def test_a_token_that_shows_nothing_yet_makes_no_chunk(shape: Completion | Chat) -> None:
    withheld = StreamedToken(1, 0, 1, "")

    assert shape.chunks(choice(withheld), [withheld]) == []


def test_only_chats_open_with_a_role() -> None:
    assert Completion(None).opening(1) == []
    assert Chat(None).opening(1)[0]["delta"]["role"] == "assistant"


def test_usage_counts_every_token_also_the_one_that_ended_it() -> None:
    ended = StreamedToken(1, 2, -1, "", "cancelled")

    assert usage(5, [choice(IN, THE, STOP), choice(IN, THE, ended)]) == {
        "prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10,
    }  # fmt: skip


def test_a_head_names_the_generation_and_the_build() -> None:
    head = new_head("cmpl", "job", "demo", "0123456789abcdef0123456789abcdef")

    assert head.fields("text_completion")["id"] == "cmpl-job"
    assert head.fields("text_completion")["system_fingerprint"] == "fp_0123456789ab"
