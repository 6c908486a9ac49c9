"""Failed audits on their way to the market: the node is left alone at once, the market is told until it has heard.

A thread of its own, because a lane must not wait for a database. Knows findings and two callbacks.
"""

import logging
import queue
import threading
from collections.abc import Callable

from inference.audit import Finding
from inference.bookkeeper import NotAcknowledged

logger = logging.getLogger(__name__)

RETRY_SECONDS = 1.0


class FindingReporter:
    """ban(node id): called in the finder's thread; tell(finding): may raise NotAcknowledged to be called again."""

    def __init__(self, ban: Callable[[str], None], tell: Callable[[Finding], None]) -> None:
        self._ban, self._tell = ban, tell
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
        while (finding := self._queue.get()) is not None:
            while not self._told(finding) and not self._stopping.wait(RETRY_SECONDS):
                continue

    def _told(self, finding: Finding) -> bool:
        try:
            self._tell(finding)
        except NotAcknowledged as error:
            logger.warning("node %s failed an audit, the market is told again: %s", finding.who.node_id, error)
            return False
        except Exception:
            logger.exception("the market cannot be told that node %s failed an audit", finding.who.node_id)
        return True
