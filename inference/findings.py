"""What audits found, on its way to the market: a failure at once, passes summed over a window.

A failed node is left alone at once here; the market is told until it has heard. A thread of its own, because a lane
must not wait for a database. Knows findings and callbacks.
"""

import itertools
import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

from inference.audit import Finding, NodeClass
from inference.bookkeeper import NotAcknowledged

logger = logging.getLogger(__name__)

RETRY_SECONDS = 1.0


class FindingReporter:
    """ban(node id): called in the finder's thread; tell(finding) and tell_passes(who, passes, window number): may raise
    NotAcknowledged to be called again; take_passes: who -> audits passed since the last call."""

    def __init__(
        self,
        ban: Callable[[str], None],
        tell: Callable[[Finding], None],
        *,
        take_passes: Callable[[], Counter[NodeClass]] = Counter,
        tell_passes: Callable[[NodeClass, int, int], None] = lambda who, passes, window: None,
        window_seconds: float = 60.0,
    ) -> None:
        self._ban, self._tell = ban, tell
        self._take_passes, self._tell_passes = take_passes, tell_passes
        self._window_seconds = window_seconds
        self._windows = itertools.count()
        self._queue: queue.SimpleQueue[Finding | None] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="findings", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when everything was told or failed once more."""
        self._stopping.set()
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join()

    def report(self, finding: Finding) -> None:
        self._ban(finding.who.node_id)
        self._queue.put(finding)

    def _run(self) -> None:
        window_ends = time.monotonic() + self._window_seconds
        while True:
            try:
                finding = self._queue.get(timeout=max(0.0, window_ends - time.monotonic()))
            except queue.Empty:
                self._report_passes()
                window_ends = time.monotonic() + self._window_seconds
                continue
            if finding is None:
                self._report_passes()
                return
            self._until_told(partial(self._tell, finding), finding.who.node_id)

    def _report_passes(self) -> None:
        window = next(self._windows)
        for who, passes in self._take_passes().items():
            self._until_told(partial(self._tell_passes, who, passes, window), who.node_id)

    def _until_told(self, tell: Callable[[], None], node_id: str) -> None:
        while not self._is_told(tell, node_id) and not self._stopping.wait(RETRY_SECONDS):
            continue

    @staticmethod
    def _is_told(tell: Callable[[], None], node_id: str) -> bool:
        try:
            tell()
        except NotAcknowledged as error:
            logger.warning("the market is told again about audits of node %s: %s", node_id, error)
            return False
        except Exception:
            logger.exception("the market cannot be told about audits of node %s", node_id)
        return True
