"""The machines of a test cluster: network namespaces on one bridge where that is permitted, else names for this host.

Each namespace is a host with an address of its own; this process reaches all of them through the bridge. Workers' hosts
let nobody in: they dial out, as behind a router.
"""

import os
import shutil
import socket
import subprocess
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self

from inference.demos.nat.network import run
from inference.demos.replayed import DemoFailed

NETWORK = "10.214.0"
OURSELVES = f"{NETWORK}.254"


class Hosts(Protocol):
    """inside: what to put before a command that shall run on that host; port: one that is free there."""

    is_separate: bool

    def address(self, host: str) -> str: ...

    def inside(self, host: str) -> list[str]: ...

    def port(self, wanted: int) -> int: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def make_hosts(names: Sequence[str], closed: Sequence[str]) -> Hosts:
    """`closed`: those of the names that let nobody in."""
    return Namespaces(names, closed) if may_separate() else OneHost()


def may_separate() -> bool:
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("iptables") is None:
        return False
    probe = f"es{os.getpid()}p"
    try:
        run("ip", "netns", "add", probe)
        run("ip", "netns", "exec", probe, "iptables", "-L", "-n")
        run("ip", "link", "add", probe, "type", "bridge")
    except DemoFailed:
        return False
    finally:
        subprocess.run(["ip", "link", "del", probe], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "del", probe], capture_output=True, check=False)
    return True


class OneHost:
    """Every name is this host; ports differ instead of addresses."""

    is_separate = False

    def address(self, host: str) -> str:
        return "127.0.0.1"

    def inside(self, host: str) -> list[str]:
        return []

    def port(self, wanted: int) -> int:
        with socket.create_server(("127.0.0.1", 0)) as free:
            return int(free.getsockname()[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing was made."""


class Namespaces:
    """Made on entry, gone on exit."""

    is_separate = True

    def __init__(self, names: Sequence[str], closed: Sequence[str]) -> None:
        self._numbers = {name: number for number, name in enumerate(names, 1)}
        self._closed = closed
        self._mark = f"es{os.getpid()}"

    def address(self, host: str) -> str:
        return f"{NETWORK}.{self._numbers[host]}"

    def inside(self, host: str) -> list[str]:
        return ["ip", "netns", "exec", self._namespace(host)]

    def port(self, wanted: int) -> int:
        return wanted

    def _namespace(self, host: str) -> str:
        return f"{self._mark}n{self._numbers[host]}"

    def __enter__(self) -> Self:
        bridge = f"{self._mark}b"
        try:
            run("ip", "link", "add", bridge, "type", "bridge")
            run("ip", "address", "add", f"{OURSELVES}/24", "dev", bridge)
            run("ip", "link", "set", bridge, "up")
            for host, number in self._numbers.items():
                name, cable = self._namespace(host), f"{self._mark}v{number}"
                run("ip", "netns", "add", name)
                run("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
                run("ip", "link", "set", cable, "master", bridge, "up")
                run("ip", "-n", name, "address", "add", f"{self.address(host)}/24", "dev", "eth0")
                run("ip", "-n", name, "link", "set", "eth0", "up")
                run("ip", "-n", name, "link", "set", "lo", "up")
            for host in self._closed:
                self._close(host)
        except DemoFailed:
            self._remove()
            raise
        return self

    def _close(self, host: str) -> None:
        tables = [*self.inside(host), "iptables"]
        run(*tables, "-P", "INPUT", "DROP")
        run(*tables, "-A", "INPUT", "-i", "lo", "-j", "ACCEPT")
        run(*tables, "-A", "INPUT", "-m", "conntrack", "--ctstate", "ESTABLISHED,RELATED", "-j", "ACCEPT")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def _remove(self) -> None:
        for host in self._numbers:
            subprocess.run(["ip", "netns", "del", self._namespace(host)], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", f"{self._mark}b"], capture_output=True, check=False)
