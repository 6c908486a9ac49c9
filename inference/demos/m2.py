"""M2: workers behind a NAT, through the relay on port 443.

Everything runs in network namespaces (`inference.demos.nat`): a server behind nginx with TLS, a router that masquerades
and lets nobody in, and three workers on lines of 20, 100 and 250 ms with stalls; one line goes away for a while.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from config.supervisor import run_file
from inference.demos import Figures, Say
from inference.demos.nat.front import make_certificates, nginx
from inference.demos.nat.network import SERVER, SERVER_MANAGEMENT, NatLab, missing
from inference.demos.replayed import DemoFailed, compare
from inference.demos.served import ROOT, ask, clean_environment, complete, end, running_server
from inference.gguf_index import open_index

PROMPT = "In the beginning"
READY_SECONDS, STATUS_SECONDS, STOP_SECONDS = 90.0, 2.0, 15.0


@dataclass(frozen=True)
class Plan:
    """round_trips: milliseconds of each worker's line; the last one is cut for `cut_seconds` meanwhile."""

    round_trips: tuple[int, ...] = (20, 100, 250)
    sequences: int = 16
    tokens: int = 32
    cut_seconds: float = 30.0
    stall_every: float = 8.0
    ping_seconds: float = 10.0


@dataclass(frozen=True)
class NatFigures(Figures):
    """sessions: those that came through the NAT, the second one of the worker that was cut included."""

    sessions: int = 0
    rows_after_cut: int = 0
    unreachable: bool = False

    @property
    def lines(self) -> list[str]:
        blocked = "refused by the router" if self.unreachable else "NOT REFUSED"
        return [
            f"sessions through NAT and TLS    {self.sessions}",
            f"connections to a worker's host  {blocked}",
            f"rows by workers after the cut   {self.rows_after_cut}",
            *super().lines,
        ]


@dataclass(frozen=True)
class Site:
    """The running whole."""

    lab: NatLab
    server: run_file.RunFile
    folder: Path

    def workers_live(self) -> int:
        return int(ask(self.server, "GET", "/api/stats")["workers"]["live"])

    def rows(self) -> dict[str, int]:
        """Rows by place of computing, once the backbone has had the time to tell."""
        time.sleep(STATUS_SECONDS)
        rows: dict[str, int] = ask(self.server, "GET", "/api/stats")["rows"]
        return rows

    def sessions(self) -> int:
        """Sessions that the workers' logs speak of."""
        logs = self.folder.glob("worker-*.log")
        return sum(log.read_text(errors="replace").count("connected to the relay") for log in logs)

    def wait_for(self, workers: int, seconds: float = READY_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while self.workers_live() < workers:
            if time.monotonic() > deadline:
                logs = "\n".join(log.read_text(errors="replace")[-1500:] for log in self.folder.glob("worker-*.log"))
                raise DemoFailed(f"{self.workers_live()} of {workers} workers serve\n{logs}")
            time.sleep(0.5)

    def is_unreachable(self, number: int) -> bool:
        """Whether the server cannot open a connection to a worker's host."""
        program = f"import socket; socket.create_connection(('{self.lab.worker_address(number)}', 22), 1)"
        command = [*self.lab.inside(self.lab.server), sys.executable, "-c", program]
        error = subprocess.run(command, capture_output=True, text=True, check=False).stderr
        # A host that was reached would refuse: nothing listens there.
        return "TimeoutError" in error

    def texts(self, plan: Plan, first_seed: int = 0) -> "list[Future[str]]":
        """Starts all texts of a plan at once."""
        pool = ThreadPoolExecutor(plan.sequences)
        seeds = range(first_seed, first_seed + plan.sequences)
        futures = [pool.submit(complete, self.server, PROMPT, plan.tokens, seed) for seed in seeds]
        pool.shutdown(wait=False)
        return futures


@contextmanager
def site(model: Path, folder: Path, plan: Plan) -> Iterator[Site]:
    """Network, server, nginx and workers, all serving; gone at the end. Raises DemoFailed."""
    reason = missing()
    if reason is not None:
        raise DemoFailed(reason)
    workers = len(plan.round_trips)
    with ExitStack() as stack:
        lab = stack.enter_context(NatLab(workers))
        authority = make_certificates(folder, [SERVER, "127.0.0.1"])
        var_dir = folder / "var"
        var_dir.mkdir()
        environment = {
            # Each worker finds the server at its own end of its slow line.
            "PUBLIC_URL": "https://127.0.0.1",
            "RELAY_PUBLIC_URL": "wss://127.0.0.1/relay/",
            "ALLOWED_HOSTS": f"127.0.0.1,{SERVER},{SERVER_MANAGEMENT}",
            "RELAY_PING_SECONDS": str(plan.ping_seconds),
            "CREDIT_WINDOW_SECONDS": "5",
            "SPOOL_SECONDS": "1",
        }
        within = lab.inside(lab.server)
        options = ["--workers", "0", "--host", SERVER_MANAGEMENT]
        server = stack.enter_context(running_server(model, var_dir, options, prefix=within, environment=environment))
        stack.enter_context(nginx(folder, SERVER, server.url, prefix=within))
        budget = open_index(model).routed_bytes // workers + (1 << 20)
        for number, milliseconds in enumerate(plan.round_trips):
            stack.enter_context(_line(lab, number, milliseconds, plan, folder))
            stack.enter_context(_worker(lab, number, budget, authority, folder))
        here = Site(lab, server, folder)
        here.wait_for(workers)
        yield here


@contextmanager
def _started(command: list[str], log: Path, environment: dict[str, str]) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        yield
    finally:
        end(process, STOP_SECONDS)


@contextmanager
def _line(lab: NatLab, number: int, milliseconds: int, plan: Plan, folder: Path) -> Iterator[None]:
    command = [
        *(*lab.inside(lab.worker(number)), sys.executable, "-m", "inference.demos.nat.slow_line"),
        *("--listen", "127.0.0.1:443", "--to", f"{SERVER}:443", "--milliseconds", str(milliseconds / 2)),
        *("--stall-every", str(plan.stall_every), "--stall-seconds", "1", "--seed", str(number)),
    ]
    with _started(command, folder / f"line-{number}.log", clean_environment()):
        yield


@contextmanager
def _worker(lab: NatLab, number: int, budget: int, authority: Path, folder: Path) -> Iterator[None]:
    command = [
        *(*lab.inside(lab.worker(number)), sys.executable, "-m", "inference.worker"),
        *("--server", "https://127.0.0.1", "--ca", str(authority), "--name", f"nat-{number}"),
        *("--state", str(folder / f"state-{number}"), "--budget", str(budget), "--threads", "1"),
    ]
    environment = {**clean_environment(), "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    with _started(command, folder / f"worker-{number}.log", environment):
        yield


def show(here: Site, plan: Plan, say: Say) -> NatFigures:
    """Writes texts, cuts a line meanwhile, mends it, writes again. The replay is the caller's."""
    unreachable = all(here.is_unreachable(number) for number in range(len(plan.round_trips)))
    say(f"{plan.sequences} texts of {plan.tokens} tokens; worker {len(plan.round_trips)}'s line is cut meanwhile ...")
    began = time.monotonic()
    first = here.texts(plan)
    time.sleep(min(3.0, plan.cut_seconds))
    cut = len(plan.round_trips) - 1
    here.lab.cut(cut)
    time.sleep(plan.cut_seconds)
    here.lab.mend(cut)
    texts = [future.result() for future in first]
    say(f"the first of them: {PROMPT}{texts[0]!r}")
    seconds = time.monotonic() - began
    before = here.rows().get("remote", 0)
    here.wait_for(len(plan.round_trips))
    say("the line is back; the same again ...")
    began = time.monotonic()
    for future in here.texts(plan, plan.sequences):
        future.result()
    seconds += time.monotonic() - began
    rows = here.rows()
    remote = rows.get("remote", 0)
    return NatFigures(
        tokens=2 * plan.sequences * plan.tokens,
        seconds=seconds,
        rows_remote=remote,
        rows_total=sum(rows.values()),
        positions=0,
        max_abs_diff=0.0,
        sessions=here.sessions(),
        rows_after_cut=remote - before,
        unreachable=unreachable,
    )


def replayed(figures: NatFigures, folder: Path) -> NatFigures:
    """The figures with what the replay of every batch through plain llama.cpp showed. Raises DemoFailed."""
    positions, difference = compare(sorted((folder / "var" / "traces").rglob("lane-*.jsonl")))
    return NatFigures(**{**figures.__dict__, "positions": positions, "max_abs_diff": difference})


def run(model: Path, say: Say) -> NatFigures:
    """Raises DemoFailed, at once with what to install where no such network can be made."""
    plan = Plan()
    with tempfile.TemporaryDirectory(prefix="demo-m2-") as name:
        folder = Path(name)
        os.chmod(folder, 0o700)
        say("making a server with TLS on 443, a NAT router and three workers on slow lines ...")
        with site(model, folder, plan) as here:
            say("all of them hold their experts and were challenged through the relay")
            figures = show(here, plan, say)
        say("replaying every batch through plain llama.cpp in another process ...")
        return replayed(figures, folder)
