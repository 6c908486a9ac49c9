"""Credit windows on disk: what workers earned is written down before it is sent, and sent until it is acknowledged.

One JSON file per window, replaced atomically. A killed backbone loses at most what it counted since the last write.
This module knows files and counts; it knows nothing of prices or of the market.
"""

import fcntl
import json
import logging
import os
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from inference.work_report import WorkKey

logger = logging.getLogger(__name__)


@dataclass
class CreditWindow:
    """Rows used in [started, ended), Unix seconds, of one build by one boot of a backbone."""

    build: str
    boot: str
    number: int
    started: float
    ended: float
    rows: Counter[WorkKey] = field(default_factory=Counter)

    def by_node(self) -> dict[str, list[tuple[int, int, int]]]:
        """Node id -> [(claim id, layer, rows)], sorted."""
        result: dict[str, list[tuple[int, int, int]]] = {}
        for key, rows in sorted(self.rows.items()):
            result.setdefault(key.node_id, []).append((key.claim_id, key.layer, rows))
        return result

    def key(self, node_id: str) -> str:
        """The idempotency key of one node's credit in this window."""
        return f"{self.build}/{self.boot}/{self.number}/{node_id}"


class CreditSpool:
    """The folder of windows that the market has not acknowledged yet."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held = ""
        self._let_go: Callable[[], object] = lambda: None
        folder.mkdir(parents=True, exist_ok=True)

    def hold(self, boot: str) -> None:
        """Windows of this boot are this process's as long as it lives: other backbones that share the folder leave them
        alone. The kernel lets go of the lock with the process, however it ends."""
        descriptor = os.open(self._folder / f"{boot}.lock", os.O_WRONLY | os.O_CREAT, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        self._held, self._let_go = boot, weakref.finalize(self, os.close, descriptor)

    def release(self) -> None:
        """Leaves what is not acknowledged to whoever comes."""
        if self._held:
            (self._folder / f"{self._held}.lock").unlink(missing_ok=True)
            self._let_go()
            self._held = ""

    def write(self, window: CreditWindow) -> None:
        """Stores the window's present state, replacing an earlier one; raises OSError when the disk is full."""
        path = self._path(window)
        temporary = path.with_suffix(".tmp")
        body = {
            "build": window.build,
            "boot": window.boot,
            "number": window.number,
            "started": window.started,
            "ended": window.ended,
            "rows": [[*key, rows] for key, rows in sorted(window.rows.items())],
        }
        with temporary.open("w") as file:
            json.dump(body, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)

    def acknowledge(self, window: CreditWindow) -> None:
        """The market has it: forget the window."""
        self._path(window).unlink(missing_ok=True)

    def set_aside(self, window: CreditWindow) -> None:
        """Keeps the window under a name that `pending` does not list."""
        self._path(window).replace(self._path(window).with_suffix(".refused"))

    def pending(self) -> Iterator[CreditWindow]:
        """Every stored window but those of other living backbones, oldest first; a file that cannot be read is set
        aside, never deleted. Backbones that share the folder acknowledge at the same moments: a file may be gone by the
        time it is looked at."""
        for path in sorted(self._folder.glob("*.json"), key=_modified):
            try:
                body = json.loads(path.read_text())
                rows = Counter({WorkKey(str(n), int(c), int(layer)): int(r) for n, c, layer, r in body.pop("rows")})
                window = CreditWindow(**body, rows=rows)
            except FileNotFoundError:
                continue
            except (OSError, ValueError, TypeError, KeyError) as error:
                logger.error("credit window %s cannot be read and is set aside: %s", path.name, error)
                path.replace(path.with_suffix(".bad"))
                continue
            if not self._belongs_to_another(window.boot):
                yield window

    def _belongs_to_another(self, boot: str) -> bool:
        if boot == self._held:
            return False
        path = self._folder / f"{boot}.lock"
        try:
            with path.open() as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        path.unlink(missing_ok=True)  # of a dead one
        return False

    def _path(self, window: CreditWindow) -> Path:
        return self._folder / f"{window.boot}-{window.number:08d}.json"


def _modified(path: Path) -> float:
    """When, in Unix seconds; 0 for a file that is gone."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
