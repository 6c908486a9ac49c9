"""inference/token_writer.py: everything arrives in order, first tokens at once, many tokens together under load."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from inference import token_stream, token_writer
from inference.token_stream import StreamedToken
from inference.token_writer import TokenWriter


@pytest.fixture
def client(redis_database: str) -> Iterator["redis.Redis"]:
    with redis.Redis.from_url(redis_database) as connection:
        yield connection


@pytest.fixture
def writer(client: "redis.Redis") -> Iterator[TokenWriter]:
    made = TokenWriter(client)
    made.start()
    yield made
    made.stop()


def token(index: int, finish: str = "") -> StreamedToken:
    return StreamedToken(1, index, 100 + index, f"{index} ", finish)


def entries(client: "redis.Redis", generation: str) -> int:
    count: Any = client.xlen(token_stream.stream_key(generation))
    return int(count)


def until_written(client: "redis.Redis", generation: str, tokens: int) -> float:
    started = time.monotonic()
    while len(token_stream.stored(client, generation)) < tokens:
        assert time.monotonic() - started < 5.0
        time.sleep(0.001)
    return time.monotonic() - started


def test_everything_that_was_put_is_written_before_it_stops(client: "redis.Redis") -> None:
    writer = TokenWriter(client)
    writer.start()
    for index in range(3000):
        writer.put("a", token(index))

    writer.stop()

    assert [found.index for found in token_stream.stored(client, "a")] == list(range(3000))
    assert entries(client, "a") < 300


def test_one_reader_alone_gets_each_token_as_it_comes(client: "redis.Redis", writer: TokenWriter) -> None:
    for index in range(20):
        writer.put("a", token(index))
        until_written(client, "a", index + 1)

    assert entries(client, "a") == 20


def test_tokens_of_many_generations_are_gathered(client: "redis.Redis", writer: TokenWriter) -> None:
    names = [f"g{number}" for number in range(32)]
    for index in range(60):
        for name in names:
            writer.put(name, token(index, "length" if index == 59 else ""))
        time.sleep(0.005)

    until_written(client, "g31", 60)

    assert entries(client, "g0") <= 20
    for name in names:
        assert [found.index for found in token_stream.stored(client, name)] == list(range(60))


@pytest.mark.parametrize("urgent", [token(0), token(7, "stop")], ids=["first", "last"])
def test_first_tokens_and_ends_do_not_wait_for_others(
    client: "redis.Redis", monkeypatch: pytest.MonkeyPatch, urgent: StreamedToken
) -> None:
    monkeypatch.setattr(token_writer, "LONGEST_PAUSE_SECONDS", 3.0)
    monkeypatch.setattr(token_writer, "PAUSE_PER_GENERATION_SECONDS", 3.0)
    writer = TokenWriter(client)
    writer.put("busy", token(5))
    writer.put("busier", token(5))
    writer.start()
    until_written(client, "busier", 1)  # from now on it gathers for three seconds

    writer.put("new", urgent)

    assert until_written(client, "new", 1) < 1.0
    writer.stop()


def test_a_redis_that_refuses_is_asked_until_it_takes_them(
    client: "redis.Redis", writer: TokenWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_writer, "RETRY_SECONDS", 0.01)
    real, refusals = token_stream.append, iter(range(3))

    def flaky(*arguments: Any) -> None:
        for _ in refusals:
            raise redis.ConnectionError("gone")
        real(*arguments)

    monkeypatch.setattr(token_stream, "append", flaky)
    writer.put("a", token(0))
    writer.put("a", token(1))

    until_written(client, "a", 2)

    assert [found.index for found in token_stream.stored(client, "a")] == [0, 1]
