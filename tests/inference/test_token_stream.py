"""inference/token_stream.py: entries survive Redis unchanged; a reader drops what it has seen."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from inference import token_stream
from inference.token_stream import FreshTokens, StreamedToken


@pytest.fixture
def client(redis_database: str) -> Iterator["redis.Redis"]:
    with redis.Redis.from_url(redis_database) as connection:
        yield connection


PLAIN = StreamedToken(1, 0, 42, "é\n\0")
RICH = StreamedToken(1, 1, 43, "", "stop", logprob=-0.25, top=((43, "a", -0.25), (44, "\ufffd", -3.5)))
PLACED = StreamedToken(1, 2, 44, "x", places=(30, 2, 0))
FAILED = StreamedToken(2, 2, -1, "", "error", error="prompt_too_long: shorten it")


def test_every_field_comes_back_as_it_was_written(client: "redis.Redis") -> None:
    token_stream.append(client, [("a", PLAIN), ("a", RICH), ("b", PLAIN), ("c", PLACED)])

    assert list(token_stream.read(client, "a", 1.0)) == [PLAIN, RICH]
    assert token_stream.stored(client, "b") == [PLAIN]
    assert token_stream.stored(client, "c") == [PLACED]


def test_an_error_comes_back_with_its_reason(client: "redis.Redis") -> None:
    token_stream.append(client, [("a", FAILED)])

    assert token_stream.stored(client, "a") == [FAILED]


def test_a_stream_is_kept_for_an_hour_after_its_last_word(client: "redis.Redis") -> None:
    token_stream.append(client, [("a", PLAIN)])
    client.expire(token_stream.stream_key("a"), 10)

    token_stream.append(client, [("a", RICH)])

    assert 3590 < client.ttl(token_stream.stream_key("a")) <= 3600


def test_a_reader_sees_each_index_once_over_attempts() -> None:
    fresh = FreshTokens()
    written = [(1, 0), (1, 1), (2, 1), (2, 2), (1, 2), (1, 3), (2, 3)]

    seen = [(attempt, index) for attempt, index in written if fresh.admit(StreamedToken(attempt, index, 7, "x"))]

    assert seen == [(1, 0), (1, 1), (2, 2), (2, 3)]


def test_the_end_is_seen_even_when_its_index_was() -> None:
    fresh = FreshTokens(next_index=5)

    assert not fresh.admit(StreamedToken(1, 4, 7, "x"))
    assert fresh.admit(StreamedToken(1, 4, 7, "x", "stop"))


def test_stored_tokens_are_those_of_every_attempt_without_doubles(client: "redis.Redis") -> None:
    tokens = [StreamedToken(1, 0, 5, "a"), StreamedToken(1, 1, 6, "b"), StreamedToken(2, 1, 6, "b"),
              StreamedToken(2, 2, 7, "c")]  # fmt: skip
    token_stream.append(client, [("a", token) for token in tokens])

    assert [token.text for token in token_stream.stored(client, "a")] == ["a", "b", "c"]


def test_silence_is_a_timeout_that_names_the_generation(client: "redis.Redis") -> None:
    with pytest.raises(TimeoutError, match="generation a"):
        list(token_stream.read(client, "a", 0.05))


def test_a_cancellation_is_told_and_kept(client: "redis.Redis") -> None:
    heard: Any = client.pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
    heard.subscribe(token_stream.CANCEL_CHANNEL)
    heard.get_message(timeout=1.0)

    token_stream.request_cancel(client, "a")

    message = heard.get_message(timeout=1.0)
    assert message is not None
    assert message["data"] == b"a"
    assert token_stream.is_cancelled(client, "a")
    assert not token_stream.is_cancelled(client, "b")
    heard.close()
