"""What waits for one client to read it: a queue of frames, bounded in bytes, that knows what was really read.

An ASGI server may take any amount off our hands without the client having read it (Daphne has no backpressure), so
what was sent counts until it is acknowledged: after every PROBE_BYTES the queue adds a PING, and the PONG to it proves
that everything before it has arrived. Counted frames are bounded by credit; the limits here catch what credit does not
(a client that asks for PONGs and reads none) and are the belt to those braces.
"""

import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from relay.frames import HEADER_BYTES, MESSAGE_BYTES, MESSAGE_TARGET_BYTES, Body, Frame, encode_header
from relay.messages import ping_frame

PROBE_BYTES = 4 * 1024 * 1024
PROBE_CONTROL_BYTES = 16 * 1024
SMALL_BYTES = 1024
# A message that can go on as it came is not copied for the sake of a small frame beside it.
ALONE_BYTES = 128 * 1024


@dataclass(frozen=True)
class Limits:
    """Bytes that one client may leave unread: of control frames, which no credit bounds, and of all frames."""

    control_bytes: int
    total_bytes: int


WORKER_LIMITS = Limits(control_bytes=256 * 1024, total_bytes=32 * 1024 * 1024)
# Few, trusted, and told of every session that joins.
BACKBONE_LIMITS = Limits(control_bytes=64 * 1024 * 1024, total_bytes=256 * 1024 * 1024)


@dataclass
class _Amount:
    """Bytes of all frames, and of those without credit, since the connection opened."""

    total: int = 0
    control: int = 0


def _new_token() -> bytes:
    return os.urandom(8)


class Outbound:
    """`push` in, `take` out, `acknowledge` for every PONG."""

    def __init__(self, limits: Limits, new_token: Callable[[], bytes] = _new_token) -> None:
        self.limits = limits
        self._new_token = new_token
        self._queue: deque[tuple[bytes, Body]] = deque()
        self._pushed = _Amount()
        self._probed = _Amount()
        self._read = _Amount()
        # Random tokens: a client that could guess them could claim to have read what it never did.
        self._probes: deque[tuple[bytes, int, int]] = deque()

    @property
    def unread_bytes(self) -> int:
        return self._pushed.total - self._read.total

    @property
    def read_bytes(self) -> int:
        return self._read.total

    @property
    def is_within_limits(self) -> bool:
        control = self._pushed.control - self._read.control
        return control <= self.limits.control_bytes and self.unread_bytes <= self.limits.total_bytes

    def push(self, frame: Frame, *, counted: bool = False) -> bool:
        """Queues a frame, with a probe behind it when one is due; False when the client now leaves too much unread.

        `counted`: credit already bounds this frame.
        """
        self._append(frame, counted)
        total, control = self._pushed.total - self._probed.total, self._pushed.control - self._probed.control
        if total >= PROBE_BYTES or control >= PROBE_CONTROL_BYTES:
            self.probe()
        return self.is_within_limits

    def probe_new(self) -> bool:
        """Queues a probe unless the last one already covers all that was queued; whether it did."""
        if self._probes and self._pushed.total == self._probed.total:
            return False
        self.probe()
        return True

    def probe(self) -> None:
        """Queues a PING whose PONG acknowledges everything up to here."""
        token = self._new_token()
        self._append(ping_frame(token), counted=False)
        self._probed = _Amount(self._pushed.total, self._pushed.control)
        self._probes.append((token, self._pushed.total, self._pushed.control))

    def _append(self, frame: Frame, counted: bool) -> None:
        header, body = encode_header(frame), frame.body
        size = HEADER_BYTES + len(body)
        self._pushed.total += size
        if not counted:
            self._pushed.control += size
        # The frame came as a message of its own, and says already what it must say: that message goes on as it is.
        message = body.obj if isinstance(body, memoryview) else None
        if type(message) is bytes and len(message) == size and message.startswith(header):
            self._queue.append((message, b""))
            return
        # A body is copied once, when its message is put together. Until then a view will do, unless it would keep alive
        # a message of which it is only a small part.
        if isinstance(body, memoryview) and 2 * len(body) < len(cast(bytes, body.obj)):
            body = bytes(body)
        self._queue.append((header, body))

    def acknowledge(self, token: bytes) -> bool:
        """A PONG came; False for unknown tokens and for probes that were skipped: no harm, and they say nothing."""
        if all(token != known for known, _, _ in self._probes):
            return False
        while True:
            known, total, control = self._probes.popleft()
            if known == token:
                self._read = _Amount(total, control)
                return True

    def take(self) -> bytes | None:
        """The next message; None when nothing waits. Small frames are joined up to MESSAGE_TARGET_BYTES."""
        queue = self._queue
        if not queue:
            return None
        header, body = queue.popleft()
        if len(header) > ALONE_BYTES:
            return header
        parts = [header, body]
        size = len(header) + len(body)
        while queue:
            if len(queue[0][0]) > ALONE_BYTES:
                break
            more = len(queue[0][0]) + len(queue[0][1])
            # A small frame rides along with a large one: that costs nothing, a message of its own does.
            if size + more > MESSAGE_TARGET_BYTES and min(size, more) > SMALL_BYTES:
                break
            size += more
            if size > MESSAGE_BYTES:
                break
            parts += queue.popleft()
        return header if len(parts) == 2 and not body else b"".join(parts)

    def clear(self) -> None:
        """Drops whatever was not yet sent."""
        self._queue.clear()
