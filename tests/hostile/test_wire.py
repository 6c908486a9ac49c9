import asyncio

import pytest

from inference.hostile.wire import Answer, Tally, ask, parse, request_bytes


@pytest.mark.parametrize(
    ("data", "status"),
    [(b"HTTP/1.1 204 No Content\r\nA: b\r\n\r\n", 204), (b"", 0), (b"SSH-2.0", 0), (b"HTTP/1.1 abc", 0)],
)
def test_an_answer_is_read_by_its_first_line(data: bytes, status: int) -> None:
    assert parse(data).status == status


def test_a_request_says_how_long_its_body_is_unless_it_lies_about_it() -> None:
    honest = request_bytes("POST", "/x", {}, b"abc")
    lying = request_bytes("POST", "/x", {"Content-Length": "99"}, b"abc")

    assert honest.endswith(b"Content-Length: 3\r\n\r\nabc")
    assert lying.count(b"Content-Length") == 1
    assert b"Content-Length: 99" in lying


def test_server_errors_are_problems_always_and_silence_where_an_answer_is_due() -> None:
    tally = Tally()

    tally.note(Answer(500), "a", 0.1, must_answer=False)
    tally.note(Answer(0), "b", 0.2, must_answer=True)
    tally.note(Answer(0), "c", 0.3, must_answer=False)
    tally.note(Answer(404), "d", 0.4, must_answer=True)

    assert tally.problems == ["500 to a", "no answer to b"]
    assert tally.statuses == {"500": 1, "none": 2, "404": 1}


async def test_a_server_that_says_nothing_is_left_when_patience_ends() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)

    async with server:
        answer = await ask(server.sockets[0].getsockname()[1], b"GET / HTTP/1.1\r\n\r\n", 0.2)

    assert answer == Answer(0, ended=False)
