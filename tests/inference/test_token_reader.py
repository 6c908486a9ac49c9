"""inference/token_reader.py: late, returning and many readers lose and double nothing."""

import asyncio
import time
from collections.abc import Iterator

import pytest
import redis

from inference import token_stream
from inference.token_reader import TokenReader, token_reader
from inference.token_stream import StreamedToken


@pytest.fixture
def client(redis_database: str) -> Iterator["redis.Redis"]:
    with redis.Redis.from_url(redis_database) as connection:
        yield connection


def words(*texts: str, attempt: int = 1, start: int = 0, finish: str = "") -> list[StreamedToken]:
    last = start + len(texts) - 1
    return [
        StreamedToken(attempt, index, 100 + index, text, finish if index == last else "")
        for index, text in enumerate(texts, start)
    ]


def write(client: "redis.Redis", generation: str, tokens: list[StreamedToken]) -> None:
    token_stream.append(client, [(generation, token) for token in tokens])


async def read_all(reader: TokenReader, generation: str, next_index: int = 0) -> list[str]:
    """The texts of a generation until its end."""
    texts: list[str] = []
    async with reader.follow(generation, next_index=next_index) as following:
        while True:
            tokens = await following.take(5.0)
            assert tokens, f"nothing came after {texts}"
            texts += [token.text for _, token in tokens]
            if tokens[-1][1].finish:
                return texts


async def test_it_reads_what_was_written_before_and_after_it_came(redis_database: str, client: "redis.Redis") -> None:
    write(client, "a", words("in ", "the "))
    reading = asyncio.create_task(read_all(TokenReader(redis_database), "a"))
    await asyncio.sleep(0.05)

    write(client, "a", words("beginning", start=2, finish="stop"))

    assert await reading == ["in ", "the ", "beginning"]


async def test_a_reader_that_comes_back_continues_at_its_index(redis_database: str, client: "redis.Redis") -> None:
    write(client, "a", words("in ", "the ", "beginning", finish="stop"))

    assert await read_all(TokenReader(redis_database), "a", next_index=2) == ["beginning"]


async def test_a_new_stream_is_heard_at_once_while_others_are_waited_for(
    redis_database: str, client: "redis.Redis"
) -> None:
    reader = TokenReader(redis_database)
    slow = asyncio.create_task(read_all(reader, "slow"))
    await asyncio.sleep(0.1)  # the reader now waits on "slow" alone
    write(client, "quick", words("now", finish="stop"))
    started = time.monotonic()

    assert await read_all(reader, "quick") == ["now"]

    assert time.monotonic() - started < 0.5  # well before the waiting read would have ended by itself
    write(client, "slow", words("later", finish="stop"))
    assert await slow == ["later"]


async def test_two_readers_of_one_generation_each_get_everything(redis_database: str, client: "redis.Redis") -> None:
    reader = TokenReader(redis_database)
    write(client, "a", words("one ", "two "))
    first = asyncio.create_task(read_all(reader, "a"))
    await asyncio.sleep(0.05)
    second = asyncio.create_task(read_all(reader, "a"))
    await asyncio.sleep(0.05)

    write(client, "a", words("three", start=2, finish="length"))

    assert await first == ["one ", "two ", "three"]
    assert await second == ["one ", "two ", "three"]


async def test_readers_that_join_while_tokens_pour_in_get_everything(
    redis_database: str, client: "redis.Redis"
) -> None:
    reader, readings = TokenReader(redis_database), []
    for index in range(200):
        write(client, "a", words(f"{index} ", start=index, finish="length" if index == 199 else ""))
        if index % 10 == 0:
            readings.append(asyncio.create_task(read_all(reader, "a")))
        await asyncio.sleep(0.001)

    assert all(texts == [f"{index} " for index in range(200)] for texts in await asyncio.gather(*readings))


async def test_a_later_attempt_continues_without_loss_or_repetition(redis_database: str, client: "redis.Redis") -> None:
    reading = asyncio.create_task(read_all(TokenReader(redis_database), "a"))
    write(client, "a", words("a", "b"))
    await asyncio.sleep(0.05)
    write(client, "a", words("b", "c", attempt=2, start=1))
    write(client, "a", words("x", "y", attempt=1, start=2))  # a backbone that was given up still writes
    write(client, "a", words("d", attempt=2, start=3, finish="stop"))

    assert await reading == ["a", "b", "c", "d"]


async def test_many_generations_share_one_connection(redis_database: str, client: "redis.Redis") -> None:
    reader = TokenReader(redis_database)
    names = [f"g{number}" for number in range(32)]
    readings = [asyncio.create_task(read_all(reader, name)) for name in names]
    await asyncio.sleep(0.1)
    connections = [entry["cmd"] for entry in client.client_list()]
    for index in range(20):
        finish = "length" if index == 19 else ""
        token_stream.append(client, [(name, StreamedToken(1, index, 7, f"{index} ", finish)) for name in names])

    answers = await asyncio.gather(*readings)

    assert answers == [[f"{index} " for index in range(20)]] * 32
    assert connections.count("xread") == 1


async def test_one_reader_follows_several_generations(redis_database: str, client: "redis.Redis") -> None:
    write(client, "a", words("a0", "a1"))
    write(client, "b", words("b0", "b1", finish="stop"))

    async with TokenReader(redis_database).follow("a", "b") as following:
        taken = await following.take(5.0)
        write(client, "a", words("a2", start=2, finish="stop"))
        taken += await following.take(5.0)

    assert [token.text for number, token in taken if number == 0] == ["a0", "a1", "a2"]
    assert [token.text for number, token in taken if number == 1] == ["b0", "b1"]


async def test_nothing_new_is_an_empty_answer_after_the_timeout(redis_database: str) -> None:
    async with TokenReader(redis_database).follow("a") as following:
        assert await following.take(0.05) == []


async def test_it_outlives_a_redis_that_goes_away(redis_database: str, client: "redis.Redis") -> None:
    reading = asyncio.create_task(read_all(TokenReader(redis_database), "a"))
    write(client, "a", words("before "))
    await asyncio.sleep(0.05)

    client.client_kill_filter(_type="normal", skipme=True)
    write(client, "a", words("after", start=1, finish="stop"))

    assert await reading == ["before ", "after"]


async def test_an_event_loop_has_one_reader_per_redis(redis_database: str) -> None:
    assert token_reader(redis_database) is token_reader(redis_database)
    assert token_reader(redis_database) is not token_reader("unix:///elsewhere")
