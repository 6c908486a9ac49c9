"""SIGTERM to one of two relays under load: not one request of a backbone fails, its worker moves, it is back again."""

import queue
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from relay.backbone_link import SessionKey
from relay.codes import LinkCode
from relay.work import Outcome, Result
from tests.e2e.test_many_relays import Alice, relays_of
from tests.relay.dispatches import dispatch_of, rows
from tests.relay.live_relay import wait_until
from tests.relay.live_server import Server

pytestmark = pytest.mark.e2e

DRAIN_SECONDS = 15


@pytest.fixture(params=["daphne", "uvicorn"])
def servers(request: pytest.FixtureRequest, tmp_path: Path, redis_database: str) -> Iterator[tuple[Server, Server]]:
    first = Server(tmp_path, request.param, redis_url=redis_database)
    second = Server(tmp_path, redis_url=redis_database, first=first)
    for server in (first, second):
        server.environment["WEB_DRAIN_SECONDS"] = str(DRAIN_SECONDS)
        server.start()
    wait_until(lambda: len(relays_of(first)) == len(relays_of(second)) == 2, 20)
    yield first, second
    for server in (first, second):
        server.close()


def answer_of(alice: Alice, key: SessionKey) -> str:
    """What came of one request to a session: `answered`, or the code of its failure."""
    session = alice.link.sessions.get(key)
    if session is None or not session.replicas:
        return "not asked"
    (replica,) = session.replicas
    outcomes: queue.Queue[Outcome] = queue.Queue()
    alice.link.submit(dispatch_of(key, rows(5), claim_id=replica.claim_id, fence=replica.fence), outcomes.put)
    outcome = outcomes.get(timeout=20)
    return "answered" if isinstance(outcome, Result) else outcome.code


def test_a_relay_stops_under_load_without_a_failed_request(servers: tuple[Server, Server], redis_database: str) -> None:
    first, second = servers
    alice = Alice(redis_database)
    bob = first.worker("bob", moves=True)
    carol = second.worker("carol", moves=True)
    wait_until(lambda: alice.nodes().keys() == {"bob", "carol"}, 20)

    first.process.process.send_signal(signal.SIGTERM)
    began, answers = monotonic(), Counter[str]()
    while first.process.process.poll() is None and monotonic() < began + DRAIN_SECONDS + 10:
        for key in list(alice.link.sessions):
            answers[answer_of(alice, key)] += 1
    seconds = monotonic() - began
    ended = first.process.process.wait(5)
    wait_until(lambda: bob.client.url == second.url and bob.session, 20)
    wait_until(lambda: alice.asks("bob"), 20)

    assert answers["answered"] > 20
    # Whoever the backbone may ask at this moment answers; at the very moment of the announcement nothing is sent.
    assert set(answers) <= {"answered", "not asked", LinkCode.SESSION_LEFT}
    assert answers[LinkCode.SESSION_LEFT] <= 1
    assert ended in (0, -signal.SIGTERM)
    assert seconds < DRAIN_SECONDS
    # It lets nobody in while it empties itself, and is used again when it is back.
    first.close()
    first.start()
    wait_until(lambda: sum(alice.link.relays_connected) == 2, 20)
    assert "Traceback" not in first.process.output
    alice.close()
    for worker in (bob, carol):
        worker.close()
