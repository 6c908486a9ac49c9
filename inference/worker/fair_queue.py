"""The worker's waiting requests: backbones take turns, so that none gets more rows than another that asks as well.

Without it the backbone with most lanes, or with most sequences, would own the worker: first come, first served shares
by pressure. Turns are counted in rows (start-time fair queueing).

Source: Goyal, Vin, Cheng, "Start-time Fair Queueing", IEEE/ACM Transactions on Networking 5(5), 1997.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Requests by owner (the stream of a backbone), and things to be done when all requests before them are gone."""

    def __init__(self) -> None:
        self._waiting: dict[int, deque[tuple[float, int, T]]] = {}
        self._ends: dict[int, float] = {}
        self._now = 0.0
        self._numbers = 0
        self._afterwards: deque[tuple[int, Callable[[], None]]] = deque()
        self._is_closed = False
        self._changed = threading.Condition()

    def put(self, owner: int, rows: int, item: T) -> None:
        """Queues a request of `rows` rows; requests of one owner stay in their order."""
        with self._changed:
            # An owner that was away begins at the present turn: it has saved nothing up.
            start = max(self._now, self._ends.get(owner, 0.0))
            self._ends[owner] = start + rows
            self._numbers += 1
            self._waiting.setdefault(owner, deque()).append((start, self._numbers, item))
            self._changed.notify()

    def afterwards(self, action: Callable[[], None]) -> None:
        """Runs `action` in the taker's thread as soon as no request is left that was queued before."""
        with self._changed:
            self._afterwards.append((self._numbers, action))
            self._changed.notify()

    def close(self) -> None:
        """`get` returns None when everything is taken."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def get(self) -> T | None:
        """The next request, waiting for one; None after `close`."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._afterwards or self._is_closed)
                action = self._due_action()
                if action is None:
                    if self._waiting:
                        return self._take()
                    return None
            action()

    def _due_action(self) -> Callable[[], None] | None:
        if not self._afterwards:
            return None
        number, action = self._afterwards[0]
        if any(queue[0][1] <= number for queue in self._waiting.values()):
            return None
        self._afterwards.popleft()
        return action

    def _take(self) -> T:
        owner = min(self._waiting, key=lambda one: self._waiting[one][0][:2])
        queue = self._waiting[owner]
        self._now, _, item = queue.popleft()
        if not queue:
            del self._waiting[owner]
            if not self._waiting:  # nobody waits: old turns mean nothing any more
                self._ends.clear()
                self._now = 0.0
        return item
