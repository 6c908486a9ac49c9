"""relay/client.py against a real relay in this process: connects, answers, reconnects, stops, gives up when refused."""

import socket
from collections.abc import Iterator
from time import monotonic

import pytest

from relay import client as relay_client
from relay.client import RelayClient
from relay.frames import Frame, FrameType, Role
from relay.records import Json
from tests.relay.builders import FakeMarket
from tests.relay.live_relay import LiveRelay, ToyWorker, live_relay, wait_until


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
    wait_until(lambda: relay.roster.workers)

    bob.report(replicas=[])

    wait_until(lambda: not relay.roster.workers[bob.session].replicas)
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


def test_it_keeps_trying_until_a_relay_is_there(relay: LiveRelay) -> None:
    relay.stop()
    bob = ToyWorker(relay.url)

    relay.start()

    wait_until(lambda: bob.session)
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
