"""A lock that serves waiting threads in the order in which they came, and may be taken again by its owner. Pure.

SQLite lets waiting writers poll, so under load some of them starve. Writers of one process queue here first.
"""

import threading
from collections import deque


class FairLock:
    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._queue: deque[tuple[int, threading.Lock]] = deque()
        self._owner: int | None = None
        self._depth = 0

    def acquire(self, timeout_seconds: float) -> bool:
        """Waits for the turn of this thread; False when it did not come in time."""
        me = threading.get_ident()
        with self._mutex:
            if self._owner in (None, me):
                self._owner = me
                self._depth += 1
                return True
            gate = threading.Lock()
            gate.acquire()
            self._queue.append((me, gate))
        if gate.acquire(timeout=timeout_seconds):
            return True
        with self._mutex:
            if (me, gate) in self._queue:
                self._queue.remove((me, gate))
                return False
        # The turn came between the timeout and the mutex: it is ours already.
        return True

    def release(self) -> None:
        """Gives the lock to the thread that has waited longest."""
        with self._mutex:
            if self._owner != threading.get_ident():
                raise RuntimeError("only the owner releases a lock")
            self._depth -= 1
            if self._depth:
                return
            if not self._queue:
                self._owner = None
                return
            # Handed over directly, with no moment at which somebody else could slip in.
            self._owner, gate = self._queue.popleft()
            self._depth = 1
            gate.release()
