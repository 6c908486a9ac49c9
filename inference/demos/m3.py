"""M3: the expert-grain market. Strangers fill what is missing, devices die, others take their place, nobody waits.

The real server (`manage.py up --workers 2`) holds a part of the model; worker processes that nobody supervises bring
the rest. Some are killed with SIGKILL under traffic, newcomers claim what they left. An observer, enrolled as a device
that lends nothing, reads from GET /api/demand what the market believes; texts are generated all the while.
"""

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from config.supervisor import run_file
from inference.demos import Figures, Say
from inference.demos.replayed import DemoFailed, compare
from inference.demos.served import ROOT, ask, clean_environment, complete, end, running_server
from inference.gguf_index import open_index

LOCAL_WORKERS, SHARE_OF_LOCALS = 2, 0.3
STRANGERS, SHARE_OF_STRANGERS = 2, 0.25
STREAMS, TOKENS, PROMPT = 4, 32, "In the beginning"
LOOK_SECONDS, HEAL_SECONDS, STATUS_SECONDS = 0.1, 90.0, 2.0


@dataclass(frozen=True)
class MarketFigures(Figures):
    """What filling and healing took, beside the figures of every demo."""

    experts: int = 0
    filled_seconds: float = 0.0
    lost_experts: int = 0
    healed_seconds: float = 0.0
    restart_lost_experts: int = 0
    restart_healed_seconds: float = 0.0
    credited_microcredits: int = 0
    replay: str = ""

    @property
    def lines(self) -> list[str]:
        return [
            *super().lines,
            f"coverage filled by strangers     {self.experts} experts in {self.filled_seconds:.1f} s",
            f"after a stranger was killed      {self.lost_experts} missing, healed in {self.healed_seconds:.1f} s",
            f"after all workers were killed    {self.restart_lost_experts} missing, "
            f"healed in {self.restart_healed_seconds:.1f} s",
            f"earned by the devices            {self.credited_microcredits / 1e6:.6f} credits",
            f"replay --check                   {self.replay}",
        ]


class Observer:
    """A device without memory to lend: it asks what is wanted and sees how much is covered."""

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, trust_env=False, timeout=30.0)
        token = self._client.post("/api/nodes", json={"name": "observer", "kernel_class": "none"}).json()["token"]
        self._client.headers["Authorization"] = f"Bearer {token}"
        self.least: int | None = None

    def build(self) -> dict[str, Any]:
        found: dict[str, Any] = self._client.get("/api/demand").json()["builds"][0]
        return found

    def covered(self) -> int:
        return int(self.build()["experts_covered"])

    def wait(self, until: Callable[[int], bool], what: str) -> float:
        """Seconds until the number of covered experts is as wished; `least` is the smallest number seen."""
        began = time.monotonic()
        self.least = None
        while not until(covered := self.covered()):
            self.least = covered if self.least is None else min(self.least, covered)
            if time.monotonic() - began > HEAL_SECONDS:
                raise DemoFailed(f"{what}: only {covered} experts are covered after {HEAL_SECONDS:.0f} s")
            time.sleep(LOOK_SECONDS)
        self.least = covered if self.least is None else self.least
        return time.monotonic() - began

    def close(self) -> None:
        self._client.close()


@contextmanager
def _stranger(url: str, number: int, experts: int, folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A worker process of its own, which nobody restarts."""
    command = [sys.executable, "-m", "inference.worker", "--server", url, "--name", f"stranger {number}"]
    command += ["--state", str(folder / f"stranger-{number}"), "--experts", str(experts), "--threads", "1"]
    with (folder / f"stranger-{number}.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env=clean_environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            end(process)


class Traffic:
    """Texts that are generated one after another until the end; every one must come."""

    def __init__(self, server: run_file.RunFile, pool: ThreadPoolExecutor, streams: int) -> None:
        self._server, self._stop = server, threading.Event()
        self._results: list[Future[int]] = [pool.submit(self._stream, number) for number in range(streams)]

    def _stream(self, number: int) -> int:
        texts = 0
        while not self._stop.is_set():
            complete(self._server, PROMPT, TOKENS, number * 1000 + texts)
            texts += 1
        return texts

    def stop(self) -> None:
        self._stop.set()

    def texts(self) -> int:
        """Stops; the number of texts. Raises what a request raised."""
        self.stop()
        return sum(result.result() for result in self._results)


def run(model: Path, say: Say) -> MarketFigures:
    """Fills, kills, heals, replays. Raises DemoFailed."""
    index = open_index(model)
    experts = len(index.offered_layers) * index.experts_per_layer
    with tempfile.TemporaryDirectory(prefix="demo-m3-") as name:
        folder = Path(name)
        local_bytes = int(experts * SHARE_OF_LOCALS) * max(layer.expert_bytes for layer in index.layers.values())
        say(f"starting a server whose {LOCAL_WORKERS} workers have room for a part of {experts} experts ...")
        options = ["--workers", str(LOCAL_WORKERS), "--budget", str(local_bytes)]
        with running_server(model, folder, options, environment={"CREDIT_WINDOW_SECONDS": "3"}) as server:
            figures = _show(server, folder, experts, say)
            replay = _replay_check(folder)
        say("replaying every batch through plain llama.cpp in another process ...")
        positions, difference = compare(sorted((folder / "traces").rglob("lane-*.jsonl")))
    return MarketFigures(**{**vars(figures), "positions": positions, "max_abs_diff": difference, "replay": replay})


def _show(server: run_file.RunFile, folder: Path, experts: int, say: Say) -> MarketFigures:
    with ExitStack() as stack:
        observer = Observer(server.url)
        stack.callback(observer.close)
        pool = stack.enter_context(ThreadPoolExecutor(STREAMS))
        each = int(experts * SHARE_OF_STRANGERS)
        say(
            f"{observer.covered()} of {experts} experts are covered; "
            f"{STRANGERS} strangers come, with room for {each} each"
        )
        strangers = [
            stack.enter_context(_stranger(server.url, number, each, folder)) for number in range(1, STRANGERS + 1)
        ]
        filled = observer.wait(lambda covered: covered == experts, "filling")
        say(f"every expert is covered, {filled:.1f} s later")
        traffic, began = Traffic(server, pool, STREAMS), time.monotonic()
        stack.callback(traffic.stop)
        time.sleep(STATUS_SECONDS)
        lost, healed = _one_dies(observer, strangers, experts, say, stack, server, folder)
        restart_lost, restart_healed = _all_die(server, observer, strangers, experts, say, stack, folder)
        texts, seconds = traffic.texts(), time.monotonic() - began
        say(f"{texts} texts came meanwhile, every one whole")
        time.sleep(STATUS_SECONDS)
        rows = ask(server, "GET", "/api/stats")["rows"]
        credited = _credited(folder)
    return MarketFigures(
        texts * TOKENS, seconds, rows.get("remote", 0), sum(rows.values()), 0, 0.0, experts, filled, lost, healed,
        restart_lost, restart_healed, credited,
    )  # fmt: skip


def _one_dies(
    observer: Observer,
    strangers: list["subprocess.Popen[bytes]"],
    experts: int,
    say: Say,
    stack: ExitStack,
    server: run_file.RunFile,
    folder: Path,
) -> tuple[int, float]:
    """A stranger is killed for good; a newcomer is there when the market notices. (experts missing, seconds)."""
    say("the first stranger is killed (SIGKILL) and does not come back")
    began = time.monotonic()
    strangers[0].kill()
    observer.wait(lambda covered: covered < experts, "noticing")
    missing = experts - observer.covered()
    say(f"after {time.monotonic() - began:.1f} s the market misses {missing} experts; a newcomer comes")
    each = int(experts * SHARE_OF_STRANGERS)
    strangers[0] = stack.enter_context(_stranger(server.url, STRANGERS + 1, each, folder))
    observer.wait(lambda covered: covered == experts, "healing")
    healed = time.monotonic() - began
    say(f"healed, {healed:.1f} s after the kill")
    return missing, healed


def _all_die(
    server: run_file.RunFile,
    observer: Observer,
    strangers: list["subprocess.Popen[bytes]"],
    experts: int,
    say: Say,
    stack: ExitStack,
    folder: Path,
) -> tuple[int, float]:
    """Every worker dies at once; the supervisor restarts its own, newcomers replace the strangers."""
    say("every worker is killed; the backbone computes alone until others are there")
    began = time.monotonic()
    own = [pid for name, pid in run_file.read(folder).pids.items() if name.startswith("local-")]
    for process in strangers:
        process.kill()
    for pid in own:
        _kill(pid)
    observer.wait(lambda covered: covered < experts, "noticing")
    fewest = observer.covered()
    each = int(experts * SHARE_OF_STRANGERS)
    observer.wait(lambda covered: covered >= len(own) * int(experts * SHARE_OF_LOCALS), "restarting")
    say(f"after {time.monotonic() - began:.1f} s the server's own workers are back, with their slices; newcomers come")
    for number in range(STRANGERS):
        stack.enter_context(_stranger(server.url, STRANGERS + 2 + number, each, folder))
    observer.wait(lambda covered: covered == experts, "healing")
    healed = time.monotonic() - began
    missing = experts - fewest
    say(f"healed, {healed:.1f} s after the kill; at worst {missing} experts were missing")
    return missing, healed


def _kill(pid: int) -> None:
    """A worker that has just been restarted has another pid already; that one lives on."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _manage(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env={**clean_environment(), "VAR_DIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def _replay_check(folder: Path) -> str:
    """What `manage.py replay --check` says of the running server's books. Raises DemoFailed when they differ."""
    result = _manage(folder, "replay", "--check")
    if result.returncode != 0:
        raise DemoFailed(f"replay --check found differences:\n{result.stdout[-2000:]}{result.stderr[-1000:]}")
    return result.stdout.strip().splitlines()[-1]


def _credited(folder: Path) -> int:
    """Microcredits that devices were credited, read from the server's database."""
    with closing(sqlite3.connect(f"file:{folder / 'expertswarm.sqlite3'}?mode=ro", uri=True)) as database:
        (total,) = database.execute("SELECT COALESCE(SUM(amount_microcredits), 0) FROM market_creditedrows").fetchone()
    return int(total)
