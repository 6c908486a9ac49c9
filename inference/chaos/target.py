"""What a chaotic run needs of the server that it strikes; `processes.Server` is one, a cluster of machines another."""

import signal
import ssl
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from config.supervisor.run_file import RunFile


@dataclass(frozen=True)
class StoredEvent:
    """A row of the event table."""

    position: int
    name: str
    body: dict[str, Any]

    @property
    def postings(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.body.get("postings", [])
        return found


class Target(Protocol):
    """var_dir: the folder with `traces/` and `logs/`; tls: for an https address, None: the system's authorities;
    exit_status, leaked: of `stop`."""

    var_dir: Path
    tls: ssl.SSLContext | None
    exit_status: int | None
    leaked: list[int]

    def __enter__(self) -> "Target": ...

    def __exit__(self, *_: object) -> None: ...

    @property
    def run(self) -> RunFile:
        """Where it is now. Raises ServerNotRunning."""
        ...

    def hit(self, child: str, number: signal.Signals) -> int:
        """Signals a child (`web`, `redis`, `backbone`); its pid. Somebody starts it again."""
        ...

    def stop(self) -> None: ...

    def manage(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """A management command with the server's settings."""
        ...

    def events(self) -> Sequence[StoredEvent]:
        """The whole history."""
        ...
