"""llama.cpp's RPC servers behind slow lines, and the peer that uses them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

from inference.benchmarks.overhead import SideFailed
from inference.benchmarks.relay.processes import Client, obedient
from inference.benchmarks.rig.site import free_port, slow_line, wait_for_port
from inference.benchmarks.rpc.peer import Arm, Options

BUILD_COMMAND = "tools/build_rpc.sh"


class NotBuilt(SideFailed):
    """llama.cpp's RPC backend is not here."""


def programs(cache: Path) -> tuple[Path, Path]:
    """The server and the client's library, as tools/build_rpc.sh leaves them. Raises NotBuilt."""
    folder = cache / "rpc" / "build" / "bin"
    server, library = folder / "ggml-rpc-server", folder / "libggml-rpc.so"
    if not (server.exists() and library.exists()):
        raise NotBuilt("rpc", f"llama.cpp's RPC backend is not built: run {BUILD_COMMAND} {cache / 'rpc'}", "")
    return server, library


@contextmanager
def peer(
    cache: Path, model: Path, arm: Arm, *, servers: int, sequences: int, round_trip: float
) -> Iterator[tuple[Client, list[psutil.Process]]]:
    """A client with its model spread over `servers` servers of one thread each, and the servers. Raises SideFailed."""
    program, library = programs(cache)
    with ExitStack() as stack:
        processes, endpoints = [], []
        for _ in range(servers):
            port, process = stack.enter_context(_server(program))
            line, _process = stack.enter_context(slow_line(port, round_trip))
            processes.append(process)
            endpoints.append(f"127.0.0.1:{line}")
        options = Options(str(model), str(library), tuple(endpoints), arm, sequences)
        child = stack.enter_context(obedient("inference.benchmarks.rpc.peer", options.to_json()))
        yield child, processes


@contextmanager
def _server(program: Path) -> Iterator[tuple[int, psutil.Process]]:
    port = free_port()
    command = [str(program), "--host", "127.0.0.1", "--port", str(port), "--threads", "1"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for_port(port, process)
        yield port, psutil.Process(process.pid)
    finally:
        process.kill()
        process.wait()
