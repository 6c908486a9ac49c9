"""Two relay processes of one server: a backbone dials both, a worker may be at either, and one of them dies."""

import queue
import signal
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import httpx
import pytest
import redis

from relay.backbone_link import BackboneLink
from relay.directory import DirectoryWatch
from relay.work import Outcome, Result
from tests.relay.builders import BUILD
from tests.relay.dispatches import dispatch_of, rows
from tests.relay.live_relay import wait_until
from tests.relay.live_server import TOKEN, Server

pytestmark = pytest.mark.e2e

MOVED_SECONDS = 8.0


@pytest.fixture
def servers(tmp_path: Path, redis_database: str) -> Iterator[tuple[Server, Server]]:
    first = Server(tmp_path, redis_url=redis_database)
    second = Server(tmp_path, redis_url=redis_database, first=first)
    for server in (first, second):
        server.start()
    wait_until(lambda: len(relays_of(first)) == len(relays_of(second)) == 2, 20)
    yield first, second
    for server in (first, second):
        server.close()


def relays_of(server: Server) -> list[str]:
    answer = httpx.get(f"http://127.0.0.1:{server.port}/api/relays", timeout=10)
    relays: list[str] = answer.json()["relays"]
    return relays


class Alice:
    """A backbone that follows the relays in Redis."""

    def __init__(self, redis_url: str) -> None:
        self.link = BackboneLink([], token=TOKEN, build=BUILD, kernel_class="ggml")
        self._redis = redis.Redis.from_url(redis_url)
        self._watch = DirectoryWatch(self._redis, "ws://nobody.invalid/", self.link.set_relays)
        self.link.start()
        self._watch.start()

    def nodes(self) -> dict[str, int]:
        """Name of the worker -> our number of its relay."""
        return {session.name: key.relay for key, session in self.link.sessions.items() if session.replicas}

    def asks(self, name: str) -> bool:
        """Whether the worker of this name computed a row."""
        for key, session in self.link.sessions.items():
            if session.name == name and session.replicas:
                outcomes: queue.Queue[Outcome] = queue.Queue()
                (replica,) = session.replicas
                dispatch = dispatch_of(key, rows(5), claim_id=replica.claim_id, fence=replica.fence)
                self.link.submit(dispatch, outcomes.put)
                return isinstance(outcomes.get(timeout=20), Result)
        return False

    def close(self) -> None:
        self._watch.stop()
        self.link.stop()
        self._redis.close()


def test_dispatch_goes_on_when_one_of_two_relays_is_killed(servers: tuple[Server, Server], redis_database: str) -> None:
    first, second = servers
    alice = Alice(redis_database)
    bob = first.worker("bob", moves=True)
    carol = second.worker("carol", moves=True)
    at_first = wait_until(lambda: alice.nodes().keys() == {"bob", "carol"} and alice.nodes(), 20)
    assert alice.asks("bob")
    assert alice.asks("carol")

    first.end(signal.SIGKILL)
    died = monotonic()
    assert alice.asks("carol")
    wait_until(lambda: alice.asks("bob"), MOVED_SECONDS)
    moved_seconds = monotonic() - died

    assert at_first["bob"] != at_first["carol"]
    assert alice.nodes() == {"bob": at_first["carol"], "carol": at_first["carol"]}
    assert bob.client.url == second.url
    assert moved_seconds < MOVED_SECONDS
    # The relay comes back at its address, and is used again.
    first.start()
    wait_until(lambda: all(alice.link.relays_connected), 20)
    assert alice.asks("bob")
    alice.close()
    for worker in (bob, carol):
        worker.close()


def test_one_identity_at_two_relays_is_one_worker(servers: tuple[Server, Server]) -> None:
    first, second = servers
    here = first.worker("bob")
    wait_until(lambda: here.session)

    there = second.worker("bob")

    assert wait_until(lambda: here.rejected).code == "replaced"
    assert wait_until(lambda: there.session)
    for worker in (here, there):
        worker.close()
