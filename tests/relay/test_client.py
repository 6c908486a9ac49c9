"""relay/client.py against a real relay in this process: connects, answers, reconnects, stops, gives up when refused."""

import asyncio
import socket
from collections.abc import Iterator
from time import monotonic

import pytest

from relay import client as relay_client
from relay.admission import Node, Standing
from relay.client import RelayClient
from relay.frames import Frame, FrameType, Role
from relay.records import Json
from tests.relay.builders import FakeMarket, hello_json
from tests.relay.live_relay import LiveRelay, LoopThread, ToyWorker, live_relay, wait_until


@pytest.fixture
def relay() -> Iterator[LiveRelay]:
    with live_relay(FakeMarket()) as running:
        yield running


def test_a_worker_connects_and_tells_what_it_holds(relay: LiveRelay) -> None:
    bob = ToyWorker(relay.url)

    worker = wait_until(lambda: relay.roster.workers.get(bob.session))

    assert worker.node_id == "bob"
    assert len(worker.replicas) == 1
    bob.close()
    wait_until(lambda: not relay.roster.workers)


def test_a_report_changes_what_the_worker_may_be_asked(relay: LiveRelay) -> None:
    bob = ToyWorker(relay.url)
    wait_until(lambda: bob.session)  # the roster knows it a moment sooner than it knows itself

    assert relay.roster.workers[bob.session].replicas

    bob.report(replicas=[])

    wait_until(lambda: not relay.roster.workers[bob.session].replicas)
    assert list(relay.roster.workers) == [bob.session]
    bob.close()


def test_it_connects_again_with_a_new_session_after_the_relay_was_away(relay: LiveRelay) -> None:
    bob = ToyWorker(relay.url)
    first = wait_until(lambda: bob.session)

    relay.stop()
    wait_until(lambda: bob.closed)
    relay.start()
    second = wait_until(lambda: bob.session)

    assert second != first
    assert "1012" in bob.closed[0]
    bob.close()


def test_workers_that_lose_their_relay_together_come_back_one_by_one() -> None:
    market = FakeMarket()
    tokens = [f"token {number}" for number in range(30)]
    market.standings |= {token: Standing(Node(token, token, suspended=False)) for token in tokens}
    returned: list[float] = []
    with live_relay(market) as relay:
        thread = LoopThread()
        clients = [
            RelayClient(
                relay.url,
                Role.WORKER,
                lambda token=token: hello_json(token=token, replicas=[]),  # type: ignore[misc]
                lambda frame: None,
                on_welcome=lambda welcome: returned.append(monotonic()),
            )
            for token in tokens
        ]
        runs = [asyncio.run_coroutine_threadsafe(client.run(), thread.loop) for client in clients]
        wait_until(lambda: len(returned) == len(clients), 20)
        returned.clear()

        relay.stop()
        relay.start()
        wait_until(lambda: len(returned) == len(clients), 20)

        for client in clients:
            thread.loop.call_soon_threadsafe(client.stop)
        for run in runs:
            run.result(10)
        thread.close()
    # Of thirty, drawn from two seconds: were the delays nearly equal, all would be back within a tenth of a second.
    busiest = max(sum(start <= moment < start + 0.2 for moment in returned) for start in returned)
    assert max(returned) - min(returned) > 1.0
    assert busiest <= len(clients) // 2


def test_it_keeps_trying_until_a_relay_is_there(relay: LiveRelay) -> None:
    relay.stop()
    bob = ToyWorker(relay.url)

    assert bob.session == 0
    relay.start()

    assert wait_until(lambda: bob.session) in relay.roster.workers
    bob.close()


class TunnelProxy:
    """An HTTP proxy that knows CONNECT, and leads every host name to this machine."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._tunnels: set[asyncio.Task[None] | None] = set()
        self._thread = LoopThread()
        self._server = self._thread.run(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tunnels.add(asyncio.current_task())
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.asked.append(head.split("\r\n")[0])
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", int(head.split()[1].rpartition(":")[2]))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(pipe(reader, far_writer), pipe(far_reader, writer))

    def close(self) -> None:
        self._thread.run(self._close())
        self._thread.close()

    async def _close(self) -> None:
        self._server.close()
        await asyncio.gather(*filter(None, self._tunnels))


async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "http_proxy"])
def test_it_goes_through_the_proxy_of_the_environment(
    relay: LiveRelay, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    proxy = TunnelProxy()
    for other in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, proxy.url)

    bob = ToyWorker(f"ws://relay.test:{relay.port}/relay/")

    assert wait_until(lambda: bob.session)
    assert proxy.asked == [f"CONNECT relay.test:{relay.port} HTTP/1.1"]
    bob.close()
    proxy.close()


def test_it_reaches_this_machine_itself_without_a_proxy(relay: LiveRelay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")

    bob = ToyWorker(relay.url)

    assert wait_until(lambda: bob.session)
    bob.close()


@pytest.mark.parametrize(
    ("hello", "code"),
    [
        ({"token": "nobody"}, "bad_token"),
        ({"token": "alice-token"}, "wrong_role"),
        ({"token": "mallory-token"}, "suspended"),
        ({"build": "other"}, "build_mismatch"),
        ({"protocol": 9}, "protocol_version"),
    ],
)
def test_it_stops_and_says_why_when_trying_again_would_not_help(relay: LiveRelay, hello: Json, code: str) -> None:
    bob = ToyWorker(relay.url, **hello)

    rejected = wait_until(lambda: bob.rejected)

    assert rejected.code == code
    assert len(str(rejected)) > 20
    bob.close()


def test_the_first_of_two_workers_with_one_identity_stops(relay: LiveRelay) -> None:
    first = ToyWorker(relay.url)
    wait_until(lambda: first.session)

    second = ToyWorker(relay.url)

    assert wait_until(lambda: first.rejected).code == "replaced"
    assert second.session in relay.roster.workers
    first.close()
    second.close()


def test_an_overloaded_relay_is_asked_again(relay: LiveRelay) -> None:
    relay.market.is_down = True
    bob = ToyWorker(relay.url)
    wait_until(lambda: relay.market.questions)

    relay.market.is_down = False

    wait_until(lambda: bob.session)
    assert bob.rejected is None
    bob.close()


def test_a_session_with_nothing_to_do_stays_alive_by_pings() -> None:
    with live_relay(FakeMarket(), ping_seconds=0.05) as relay:
        bob = ToyWorker(relay.url)
        session = wait_until(lambda: bob.session)

        start = monotonic()
        wait_until(lambda: monotonic() - start > 0.5)

        assert bob.session == session
        bob.close()


def test_a_silent_relay_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_client, "OPEN_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        bob = ToyWorker(f"ws://127.0.0.1:{silent.getsockname()[1]}/relay/")

        connections = [silent.accept()[0] for _ in range(2)]

        assert bob.session == 0
        assert len({connection.getpeername() for connection in connections}) == 2
        bob.close()
        for connection in connections:
            connection.close()


def test_it_refuses_an_address_that_is_no_websocket() -> None:
    with pytest.raises(ValueError, match="ws://"):
        RelayClient("http://127.0.0.1/", Role.WORKER, dict, print)


def test_it_sends_nothing_without_a_session() -> None:
    client = RelayClient("ws://127.0.0.1:1/", Role.WORKER, dict, print)
    frame = Frame(FrameType.DRAIN)

    assert client.welcome is None
    assert not client.send(frame)
    assert not client.try_send(frame)
    client.consumed(frame)
    client.forget_peer(1)
