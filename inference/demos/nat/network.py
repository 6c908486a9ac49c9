"""Hosts made of network namespaces: a server, a router that masquerades and lets nobody in, workers behind it.

    this process -- management -- server -- wan -- router (NAT) -- lan i -- worker i

Needs root, iproute2 and iptables. Addresses are 10.213.*; namespaces carry this process's id and go with the lab.
"""

import os
import shutil
import subprocess
from types import TracebackType
from typing import Self

from inference.demos.replayed import DemoFailed

INSTALL = "apt-get install -y nginx iproute2 iptables"
PROGRAMS = ("ip", "iptables", "nginx")
MANAGEMENT, SERVER_MANAGEMENT = "10.213.9.1", "10.213.9.2"
SERVER, ROUTER = "10.213.0.1", "10.213.0.2"


def missing() -> str | None:
    """Why no lab can be made here, in one line; None when it can."""
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    if absent:
        return f"{', '.join(absent)} not found: {INSTALL}"
    if os.geteuid() != 0:
        return "network namespaces need root: run it as root"
    probe = f"es{os.getpid()}probe"
    try:
        run("ip", "netns", "add", probe)
        run("ip", "netns", "exec", probe, "iptables", "-t", "nat", "-L", "-n")
    except DemoFailed as error:
        return f"this system does not permit network namespaces or NAT: {error}"
    finally:
        subprocess.run(["ip", "netns", "del", probe], capture_output=True, check=False)
    return None


def run(*command: str) -> str:
    """The output of a command. Raises DemoFailed with its own words."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DemoFailed(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


class NatLab:
    """Made on entry, gone on exit, with everything that still runs in its namespaces left to whoever started it."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._mark = f"es{os.getpid()}"

    @property
    def server(self) -> str:
        return f"{self._mark}s"

    @property
    def router(self) -> str:
        return f"{self._mark}r"

    def worker(self, number: int) -> str:
        return f"{self._mark}w{number}"

    def worker_address(self, number: int) -> str:
        return f"10.213.{10 + number}.2"

    @staticmethod
    def inside(namespace: str) -> list[str]:
        """What to put before a command that shall run there."""
        return ["ip", "netns", "exec", namespace]

    def __enter__(self) -> Self:
        try:
            self._make()
        except DemoFailed:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def cut(self, number: int) -> None:
        """The line of a worker is gone: nothing arrives, nothing is refused."""
        run("ip", "-n", self.router, "link", "set", f"lan{number}", "down")

    def mend(self, number: int) -> None:
        run("ip", "-n", self.router, "link", "set", f"lan{number}", "up")

    def _make(self) -> None:
        for name in (self.server, self.router, *map(self.worker, range(self.workers))):
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        self._join((None, f"{self._mark}m", MANAGEMENT), (self.server, "management", SERVER_MANAGEMENT))
        self._join((self.server, "wan", SERVER), (self.router, "wan", ROUTER))
        for number in range(self.workers):
            gateway = f"10.213.{10 + number}.1"
            mine = (self.worker(number), "lan", self.worker_address(number))
            self._join((self.router, f"lan{number}", gateway), mine)
            run("ip", "-n", self.worker(number), "route", "add", "default", "via", gateway)
        # The server may try to reach the workers; the router is what stops it.
        run("ip", "-n", self.server, "route", "add", "10.213.0.0/16", "via", ROUTER)
        self._masquerade()

    def _join(self, one: tuple[str | None, str, str], other: tuple[str, str, str]) -> None:
        """A cable between two hosts: (namespace, device, address) each; None is this process's own."""
        (here, device, address), (there, far_device, far_address) = one, other
        place = ["netns", here] if here else []
        run("ip", "link", "add", device, *place, "type", "veth", "peer", "name", far_device, "netns", there)
        for namespace, name, own in ((here, device, address), (there, far_device, far_address)):
            prefix = ["-n", namespace] if namespace else []
            run("ip", *prefix, "address", "add", f"{own}/24", "dev", name)
            run("ip", *prefix, "link", "set", name, "up")

    def _masquerade(self) -> None:
        within = self.inside(self.router)
        run(*within, "sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
        run(*within, "iptables", "-P", "FORWARD", "DROP")
        run(*within, "iptables", "-A", "FORWARD", "-o", "wan", "-j", "ACCEPT")
        known = ["-m", "conntrack", "--ctstate", "ESTABLISHED,RELATED", "-j", "ACCEPT"]
        run(*within, "iptables", "-A", "FORWARD", "-i", "wan", *known)
        run(*within, "iptables", "-t", "nat", "-A", "POSTROUTING", "-o", "wan", "-j", "MASQUERADE")

    def _remove(self) -> None:
        # The management cable goes with the server's namespace.
        for name in (self.server, self.router, *map(self.worker, range(self.workers))):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", f"{self._mark}m"], capture_output=True, check=False)
