"""config/draining.py: a web process that stops keeps its word to everybody who asked before."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest

from config.draining import Draining


class Host:
    """A server as uvicorn is one: a handler for SIGTERM and its listening sockets."""

    def __init__(self, *servers: asyncio.Server) -> None:
        self.servers = servers
        self.ended = asyncio.Event()

    def handle_exit(self, number: int, frame: object) -> None:
        self.ended.set()

    @property
    def listens(self) -> bool:
        return any(server.is_serving() for server in self.servers)


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    async with await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0) as server:
        host = Host(server)
        before = signal.signal(signal.SIGTERM, host.handle_exit)
        yield host
        signal.signal(signal.SIGTERM, before)


def http(*headers: tuple[bytes, bytes]) -> dict[str, Any]:
    return {"type": "http", "headers": list(headers)}


async def never() -> dict[str, Any]:
    raise AssertionError("nobody reads")


async def test_open_answers_end_before_the_server_does(host: Host) -> None:
    told: list[str] = []
    gate = asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await gate.wait()
        told.append("answered")

    async def leave(seconds: float) -> None:
        told.append(f"relay left within {seconds:g}")

    async def ignore(event: Any) -> None:
        """Nobody listens."""

    application = Draining(slow, 5.0, leave)
    asking = asyncio.create_task(application(http(), never, ignore))
    await asyncio.sleep(0.05)

    os.kill(os.getpid(), signal.SIGTERM)
    while host.listens:
        await asyncio.sleep(0.02)
    before = host.ended.is_set()
    gate.set()
    await asyncio.wait_for(host.ended.wait(), 5)

    assert not before
    assert told == ["relay left within 5", "answered"]
    await asking


async def test_an_answer_that_does_not_end_is_cut_in_time(host: Host) -> None:
    async def endless(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.Event().wait()

    async def leave(seconds: float) -> None:
        raise RuntimeError("the relay is in disorder")

    application = Draining(endless, 0.3, leave)
    asking = asyncio.create_task(application(http(), never, never))  # type: ignore[arg-type]
    await asyncio.sleep(0.05)

    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(host.ended.wait(), 5)

    assert not asking.done()
    assert not host.listens
    asking.cancel()


async def test_a_second_signal_and_no_time_at_all_stop_at_once(host: Host) -> None:
    async def endless(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.Event().wait()

    async def leave(seconds: float) -> None:
        """There is no relay."""

    patient = asyncio.create_task(Draining(endless, 60.0, leave)(http(), never, never))  # type: ignore[arg-type]
    await asyncio.sleep(0.05)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(0.05)
    waits = host.ended.is_set()
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(0.05)
    second = host.ended.is_set()
    patient.cancel()

    signal.signal(signal.SIGTERM, host.handle_exit)
    await asyncio.wait_for(Draining(quick, 0.0, leave)(http(), never, ignore_events), 1)
    assert (waits, second) == (False, True)
    assert signal.getsignal(signal.SIGTERM) == host.handle_exit


async def quick(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]})


async def ignore_events(event: Any) -> None:
    """Nobody listens."""


@pytest.mark.parametrize("given", [b"", b"from-the-proxy-1", b"bad\nid", b"x" * 65])
async def test_every_answer_names_its_request(given: bytes) -> None:
    sent: list[Any] = []

    async def send(event: Any) -> None:
        sent.append(event)

    async def leave(seconds: float) -> None:
        """There is no relay."""

    headers = [(b"x-request-id", given)] if given else []
    await Draining(quick, 0.0, leave)(http(*headers), never, send)

    named = dict(sent[0]["headers"])
    assert named[b"a"] == b"b"
    if given == b"from-the-proxy-1":
        assert named[b"x-request-id"] == given
    else:
        assert len(named[b"x-request-id"]) == 16


async def test_a_server_of_an_unknown_kind_ends_all_the_same(host: Host) -> None:
    class Unknown(Host):
        servers = ("no listener",)  # type: ignore[assignment]

        def __init__(self) -> None:
            self.ended = asyncio.Event()

    async def leave(seconds: float) -> None:
        """There is no relay."""

    unknown = Unknown()
    signal.signal(signal.SIGTERM, unknown.handle_exit)
    await Draining(quick, 5.0, leave)(http(), never, ignore_events)

    os.kill(os.getpid(), signal.SIGTERM)

    await asyncio.wait_for(unknown.ended.wait(), 5)
