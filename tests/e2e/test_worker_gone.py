"""A worker that is killed is no replica any more long before its lease ends, and one again when it is back."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.live_server import LiveServer, live_server
from tests.e2e.processes import Running, running

pytestmark = pytest.mark.e2e

# A quarter of it is how long a closed connection may stay closed.
LEASE_SECONDS = 24.0


@contextmanager
def worker(server: LiveServer, folder: Path) -> Iterator[Running]:
    state = ["--state", str(folder / "state"), "--threads", "1", "--budget", "4MB"]
    with running(["-m", "inference.worker", "--server", server.run.url, *state], folder / "worker.log", {}) as process:
        yield process


def claims(server: LiveServer) -> tuple[int, int]:
    """Those that wait for their proof, and those with a verified replica."""
    found = server.stats()["claims"]
    return found["pending"], found["live"]


def test_a_killed_worker_loses_its_replicas_before_its_lease_and_gets_them_back(tmp_path: Path) -> None:
    timing = {"LEASE_SECONDS": str(LEASE_SECONDS), "UPKEEP_SECONDS": "1"}
    with live_server(tmp_path, "--workers", "0", **timing) as server:
        with worker(server, tmp_path) as first:
            server.wait_for(lambda: claims(server)[1] > 0 and claims(server)[0] == 0, 60, "its replicas are live")
            held = claims(server)[1]
            first.process.send_signal(signal.SIGKILL)
            first.process.wait()

            server.wait_for(
                lambda: claims(server) == (held, 0), LEASE_SECONDS * 0.8, "they are lost, its claims are not"
            )

        with worker(server, tmp_path):
            server.wait_for(lambda: claims(server) == (0, held), 30, "the same claims are live again")

            assert claims(server) == (0, held)
