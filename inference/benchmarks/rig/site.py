"""Starts and ends the processes of the rig, and tells what they cost."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from inference.benchmarks.overhead import SideFailed
from inference.benchmarks.relay.processes import ROOT, Client, obedient, serving, started
from inference.benchmarks.rig.backbone import Options
from inference.benchmarks.rig.placement import Member

DOOR = "inference.benchmarks.rig.door:application"
SERVER_PROGRAM = "uvicorn"
START_SECONDS = 30.0
BACKBONE_MODULE = "inference.benchmarks.rig.backbone"
# What a slow line holds each way: in 25 ms 335 MB/s, so that it delays and does not bound what passes.
LINE_BYTES = 8 << 20


@dataclass
class Site:
    """A running relay and its workers. processes: what is not the backbone, by kind, for the bill of processor time."""

    url: str
    processes: dict[str, list[psutil.Process]] = field(default_factory=dict)

    def cpu_seconds(self) -> dict[str, float]:
        """Processor time so far by kind of process."""
        return {kind: sum(_cpu_seconds(one) for one in ones) for kind, ones in self.processes.items()}


@contextmanager
def site(model: Path, folder: Path, groups: dict[str, Group], *, program: str = SERVER_PROGRAM) -> Iterator[Site]:
    """A relay, a slow line for every group that wants one, and the workers of all groups; lists of who holds what go
    into `folder`. Raises SideFailed."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        server = stack.enter_context(serving(program, DOOR))
        here = Site(f"ws://127.0.0.1:{server.port}/relay/", {"relay": [server.process], "lines": [], "workers": []})
        crowds: dict[int, list[Member]] = {}
        for name, group in groups.items():
            port = server.port
            if group.round_trip is not None:
                port, process = stack.enter_context(slow_line(server.port, group.round_trip))
                here.processes["lines"].append(process)
            url = f"http://127.0.0.1:{port}"
            for number, held in enumerate(group.held):
                member = Member(name, number, url, held, group.rows_per_second)
                crowds.setdefault(number % group.processes, []).append(member)
        starting: list[Client] = []
        for number, members in crowds.items():
            listing = folder / f"crowd-{number}.json"
            listing.write_text(json.dumps([member.to_json() for member in members]))
            starting.append(stack.enter_context(started("inference.benchmarks.rig.crowd", listing, model)))
            here.processes["workers"].append(psutil.Process(starting[-1].pid))
        for crowd in starting:
            crowd.answer()
        yield here


@dataclass(frozen=True)
class Group:
    """Workers that hold these ranges, in `processes` processes. round_trip: seconds of a slow line; None: no line."""

    held: Sequence[tuple[Any, ...]]
    rows_per_second: float | None = None
    round_trip: float | None = None
    processes: int = 1


@contextmanager
def backbone(options: Options, here: Site) -> Iterator[Client]:
    """Raises SideFailed."""
    with obedient(BACKBONE_MODULE, options.to_json()) as child:
        here.processes["backbone"] = [psutil.Process(child.pid)]
        yield child
        del here.processes["backbone"]


@contextmanager
def slow_line(port: int, round_trip: float) -> Iterator[tuple[int, psutil.Process]]:
    """A TCP proxy to a port of this host through which an exchange takes `round_trip` seconds more; its own port."""
    own = free_port()
    command = [
        *(sys.executable, "-m", "inference.demos.nat.slow_line", "--listen", f"127.0.0.1:{own}"),
        *("--to", f"127.0.0.1:{port}", "--milliseconds", str(round_trip * 500)),
        *("--window-bytes", str(LINE_BYTES)),
    ]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL)
    try:
        wait_for_port(own, process)
        yield own, psutil.Process(process.pid)
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def wait_for_port(port: int, process: subprocess.Popen[Any]) -> None:
    """Raises SideFailed when nobody listens there in time."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if process.poll() is not None or time.monotonic() > deadline:
            raise SideFailed(f"port {port}", "nobody listens", "")
        time.sleep(0.05)


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def cores() -> int:
    return len(os.sched_getaffinity(0))
