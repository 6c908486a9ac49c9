"""A real worker process at a real server: enrols, downloads, answers with ggml's bits, leaves without a trace.

Daphne, a database and the relay are the project's own; the backbone's side is a `BackboneLink` in the test.
"""

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from inference.gguf_index import ModelIndex, open_index
from inference.kernel import CpuRuntime, GgmlKernel, quantize_rows
from inference.rows import TYPE_Q8_K
from inference.slices import plan_slice, write_slice
from inference.worker.identity import Identity, load_identity, server_folder
from relay.backbone_link import BackboneLink, SessionKey
from relay.records import Replica, RosterSession
from relay.work import Dispatch, Failed, Outcome, Result
from tests.e2e.processes import Running, running
from tests.model_files import DEMO_MODEL

pytestmark = pytest.mark.e2e

BACKBONE_TOKEN = "a-backbone-of-this-test"
BUDGET_BYTES = 6_000_000
SLOW_BYTES_PER_SECOND = 2_000_000
# The build on offer and Daphne; a second run finds the database as the first one left it.
SERVER = """if True:
    import os, sys
    os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
    import django
    django.setup()
    from django.core.management import call_command
    call_command("migrate", verbosity=0)
    from daphne.cli import CommandLineInterface
    from inference.builds import current_index
    from inference.reports import publish_build
    publish_build(current_index())
    CommandLineInterface().run(["--port", sys.argv[1], "config.asgi:application"])
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def eventually(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """The first true value of the condition."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.05)
    return value


@contextmanager
def serving(folder: Path, port: int) -> Iterator[Running]:
    """The server on its folder and port, listening."""
    environment = {"VAR_DIR": str(folder), "MODEL_PATH": str(DEMO_MODEL), "BACKBONE_TOKEN": BACKBONE_TOKEN}
    with running(["-c", SERVER, str(port)], folder / "server.log", environment) as process:
        process.wait_for(lambda: accepts(port), 60, "Daphne listens")
        yield process


@dataclass
class Site:
    """Where server and workers of one test live."""

    folder: Path
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextmanager
    def worker(self, *options: str, url: str = "", log: str = "worker.log") -> Iterator[Running]:
        state = ["--state", str(self.folder / "state"), "--threads", "1"]
        command = ["-m", "inference.worker", "--server", url or self.url, *state, *options]
        with running(command, self.folder / log, {}) as process:
            yield process

    def identity(self, url: str = "") -> Identity:
        identity = load_identity(server_folder(self.folder / "state", url or self.url))
        assert identity is not None
        return identity

    def me(self, url: str = "") -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.identity(url).token}"}
        answer: dict[str, Any] = httpx.get(f"{self.url}/api/me", headers=headers, timeout=10).json()
        return answer


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    port = free_port()
    with serving(tmp_path, port):
        yield Site(tmp_path, port)


class Backbone:
    """The backbone's end of the relay, one request at a time."""

    def __init__(self, site: Site) -> None:
        self.link = BackboneLink(
            [f"ws://127.0.0.1:{site.port}/relay/"],
            token=BACKBONE_TOKEN,
            build=open_index(DEMO_MODEL).fingerprint,
            kernel_class="test",
        )
        self.link.start()

    def close(self) -> None:
        self.link.stop()

    def worker(self, replicas: int) -> tuple[SessionKey, RosterSession]:
        """The worker of the roster that holds so many replicas."""

        def found() -> tuple[SessionKey, RosterSession] | None:
            workers = self.link.sessions.items()
            return next(((key, session) for key, session in workers if len(session.replicas) == replicas), None)

        worker: tuple[SessionKey, RosterSession] = eventually(found, 20, f"a worker with {replicas} replicas")
        return worker

    def ask(self, dispatch: Dispatch) -> Outcome:
        outcomes: list[Outcome] = []
        done = threading.Event()

        def on_done(outcome: Outcome) -> None:
            outcomes.append(outcome)
            done.set()

        self.link.submit(dispatch, on_done)
        assert done.wait(20)
        return outcomes[0]


@pytest.fixture
def backbone(site: Site) -> Iterator[Backbone]:
    with closing(Backbone(site)) as backbone:
        yield backbone


def a_dispatch(key: SessionKey, replica: Replica, rows: Any, pairs: Any, **changes: Any) -> Dispatch:
    fields: dict[str, Any] = {
        "session": key,
        "layer": replica.layer,
        "fence": replica.fence,
        "claim_id": replica.claim_id,
        "row_dtype": 1 if rows.dtype == np.uint8 else 0,
        "rows": rows,
        "pairs": np.asarray(pairs, np.uint16),
    }
    return Dispatch(**(fields | changes))


def check_bits(backbone: Backbone, key: SessionKey, replica: Replica, index: ModelIndex, folder: Path) -> None:
    """Both kinds of rows, several pairs per row, against the same slice in this process."""
    write_slice(plan_slice(index, replica.layer, replica.first, replica.last), folder / "expected.gguf")
    runtime = CpuRuntime(threads=1)
    rows = np.random.default_rng(replica.claim_id).standard_normal((12, index.n_embd)).astype(np.float32)
    experts = np.arange(replica.first, replica.last)
    pairs = np.array([(number % 12, experts[number % len(experts)]) for number in range(40)], np.uint16)
    with GgmlKernel.open(folder / "expected.gguf", runtime) as kernel:
        for sent in (rows, quantize_rows(rows, TYPE_Q8_K)):
            for kind in ("dispatch", "challenge"):
                outcome = backbone.ask(a_dispatch(key, replica, sent, pairs, kind=kind))

                assert isinstance(outcome, Result), outcome
                expected = kernel.compute(sent[pairs[:, 0]], pairs[:, 1].astype(np.int32))
                assert np.array_equal(outcome.values.view(np.uint32), expected.view(np.uint32))
    runtime.close()


def test_a_worker_enrols_serves_exact_bits_and_leaves(site: Site, backbone: Backbone, tmp_path: Path) -> None:
    with site.worker("--budget", str(BUDGET_BYTES), "--kernel", "ggml", "--name", "bob") as worker:
        worker.wait_for(lambda: "serving layer" in worker.output, 60, "serving")

        key, session = backbone.worker(replicas=len(site.me()["claims"]))
        index = open_index(DEMO_MODEL)
        held_bytes = sum((r.last - r.first) * index.layers[r.layer].expert_bytes for r in session.replicas)
        assert session.name == "bob"
        assert session.node_id == site.identity().node_id
        assert BUDGET_BYTES - index.layers[0].expert_bytes < held_bytes <= BUDGET_BYTES
        for replica in session.replicas:
            check_bits(backbone, key, replica, index, tmp_path)

        replica = session.replicas[0]
        rows = np.ones((1, index.n_embd), np.float32)
        good, outside = [[0, replica.first]], [[0, replica.last]]
        refused = {
            "old fence": backbone.ask(a_dispatch(key, replica, rows, good, fence=replica.fence - 1)),
            "foreign expert": backbone.ask(a_dispatch(key, replica, rows, outside)),
            "narrow rows": backbone.ask(a_dispatch(key, replica, rows[:, :128].copy(), good)),
        }
        codes = {what: outcome.code for what, outcome in refused.items() if isinstance(outcome, Failed)}
        assert codes == {"old fence": "stale_fence", "foreign expert": "unknown_expert", "narrow rows": "bad_body"}
        assert isinstance(backbone.ask(a_dispatch(key, replica, rows, good)), Result)

        delivered = [claim["sha256"] for claim in site.me()["claims"]]
        assert sorted(delivered) == sorted(replica.sha256 for replica in session.replicas)
        started = time.monotonic()
        code = worker.end(signal.SIGTERM, 15)

    assert code == 0, worker.output
    assert time.monotonic() - started < 5
    assert site.me()["claims"] == []
    eventually(lambda: not backbone.link.sessions, 10, "the worker left the roster")
    assert "Traceback" not in worker.output


def test_a_worker_comes_back_after_the_server_was_killed(tmp_path: Path) -> None:
    site = Site(tmp_path, free_port())
    with site.worker("--budget", str(BUDGET_BYTES), "--kernel", "numpy") as worker:
        with serving(tmp_path, site.port):
            worker.wait_for(lambda: "connected to the relay" in worker.output, 60, "connected")
            claims = site.me()["claims"]
        connections = worker.output.count("connected to the relay")
        with serving(tmp_path, site.port), closing(Backbone(site)) as backbone:
            worker.wait_for(lambda: worker.output.count("connected to the relay") > connections, 60, "connected again")

            _, session = backbone.worker(replicas=len(claims))
            assert {replica.claim_id for replica in session.replicas} == {claim["claim_id"] for claim in claims}
            assert worker.end(signal.SIGTERM, 15) == 0
            assert site.me()["claims"] == []

    assert "registering as a new node" not in worker.output
    assert "Traceback" not in worker.output


class SlowLine:
    """A TCP proxy before the server whose answers drip at SLOW_BYTES_PER_SECOND while `slow` is set."""

    def __init__(self, port: int) -> None:
        self.slow = True
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._target))
            threading.Thread(target=self._copy, args=(near, far, False), daemon=True).start()
            threading.Thread(target=self._copy, args=(far, near, True), daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        try:
            while data := source.recv(32 * 1024):
                if answers and self.slow:
                    time.sleep(len(data) / SLOW_BYTES_PER_SECOND)
                target.sendall(data)
        except OSError:
            return
        finally:
            for end in (source, target):
                end.close()


def test_a_download_that_was_killed_goes_on_where_it_was(site: Site) -> None:
    def partial_bytes() -> int:
        found = list((site.folder / "state").glob("*/slices/*/*.part"))
        return found[0].stat().st_size if found else 0

    with closing(SlowLine(site.port)) as line:
        url = f"http://127.0.0.1:{line.port}"
        with site.worker("--budget", "3MB", "--kernel", "numpy", url=url, log="first.log") as worker:
            worker.wait_for(lambda: partial_bytes() >= 1 << 20, 60, "a piece is here")
            worker.end(signal.SIGKILL, 10)
        before, claims = partial_bytes(), site.me(url)["claims"]
        line.slow = False
        with site.worker("--budget", "3MB", "--kernel", "numpy", url=url, log="second.log") as worker:
            worker.wait_for(lambda: "serving layer" in worker.output, 60, "serving")
            after = site.me(url)["claims"]
            worker.end(signal.SIGTERM, 15)

    (slice_line,) = [text for text in worker.output.splitlines() if "bytes received" in text]
    received, here = (int(word) for word in slice_line.replace(",", "").split() if word.isdecimal() and len(word) > 5)
    assert [claim["claim_id"] for claim in after] == [claim["claim_id"] for claim in claims]
    assert here == before // (1 << 20) * (1 << 20)
    assert received + here == plan_of(claims[0]).size
    assert "registered" not in worker.output


def test_a_stop_in_the_middle_of_a_download_gives_the_claims_back(site: Site) -> None:
    with closing(SlowLine(site.port)) as line:
        url = f"http://127.0.0.1:{line.port}"
        with site.worker("--budget", "6MB", "--kernel", "numpy", url=url) as worker:
            worker.wait_for(lambda: "claimed layer" in worker.output, 60, "claimed")
            started = time.monotonic()
            code = worker.end(signal.SIGTERM, 15)

    assert code == 0, worker.output
    assert time.monotonic() - started < 5
    assert site.me(url)["claims"] == []
    assert "Traceback" not in worker.output


def plan_of(claim: dict[str, Any]) -> Any:
    return plan_slice(open_index(DEMO_MODEL), claim["layer"], claim["first"], claim["last"])
