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
from typing import NamedTuple

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
# Strong hosts: steps of several rings may be on their way at once.
STAGE_LIMITS = Limits(control_bytes=256 * 1024, total_bytes=128 * 1024 * 1024)
# Few, trusted, and told of every session that joins.
BACKBONE_LIMITS = Limits(control_bytes=64 * 1024 * 1024, total_bytes=256 * 1024 * 1024)


class _Waiting(NamedTuple):
    """Bytes of whole frames that wait. is_message: the one part can be sent as a message as it is."""

    size: int
    parts: tuple[Body, ...]
    is_message: bool


def _new_token() -> bytes:
    return os.urandom(8)


class Outbound:
    """`push` in, `take` out, `acknowledge` for every PONG."""

    def __init__(self, limits: Limits, new_token: Callable[[], bytes] = _new_token) -> None:
        self.limits = limits
        self._new_token = new_token
        self._queue: deque[_Waiting] = deque()
        # Bytes of all frames, and of those without credit, since the connection opened.
        self._pushed_total = self._pushed_control = 0
        self._probed_total = self._probed_control = 0
        self._read_total = self._read_control = 0
        # Random tokens: a client that could guess them could claim to have read what it never did.
        self._probes: deque[tuple[bytes, int, int]] = deque()

    @property
    def unread_bytes(self) -> int:
        return self._pushed_total - self._read_total

    @property
    def read_bytes(self) -> int:
        return self._read_total

    def push(self, frame: Frame, *, counted: bool = False) -> bool:
        """Queues a frame, with a probe behind it when one is due; False when the client now leaves too much unread.

        counted: credit already bounds this frame.
        """
        self._append(frame, counted)
        return self._look()

    def pass_on(self, frames: Body, message: bytes) -> bool:
        """Queues counted frames as they came, `frames` of `message`; False as above."""
        size = len(frames)
        if size == len(message):
            waiting = _Waiting(size, (message,), is_message=True)
        elif 2 * size < len(message):
            # A view would keep alive a message of which it is only a small part.
            waiting = _Waiting(size, (bytes(frames),), is_message=True)
        else:
            waiting = _Waiting(size, (frames,), is_message=False)
        self._pushed_total += size
        self._queue.append(waiting)
        return self._look()

    def _look(self) -> bool:
        control = self._pushed_control
        if (
            self._pushed_total - self._probed_total >= PROBE_BYTES
            or control - self._probed_control >= PROBE_CONTROL_BYTES
        ):
            self.probe()
        is_read = control - self._read_control <= self.limits.control_bytes
        return is_read and self._pushed_total - self._read_total <= self.limits.total_bytes

    def probe_new(self) -> bool:
        """Queues a probe unless the last one already covers all that was queued; whether it did."""
        if self._probes and self._pushed_total == self._probed_total:
            return False
        self.probe()
        return True

    def probe(self) -> None:
        """Queues a PING whose PONG acknowledges everything up to here."""
        token = self._new_token()
        self._append(ping_frame(token), counted=False)
        self._probed_total, self._probed_control = self._pushed_total, self._pushed_control
        self._probes.append((token, self._pushed_total, self._pushed_control))

    def _append(self, frame: Frame, counted: bool) -> None:
        body = frame.body
        size = HEADER_BYTES + len(body)
        self._pushed_total += size
        if not counted:
            self._pushed_control += size
        # A body is copied once, when its message is put together. Until then a view will do, see `pass_on`.
        if isinstance(body, memoryview) and 2 * len(body) < len(memoryview(body.obj)):
            body = bytes(body)
        self._queue.append(_Waiting(size, (encode_header(frame), body), is_message=False))

    def acknowledge(self, token: bytes) -> bool:
        """A PONG came; False for unknown tokens and for probes that were skipped: no harm, and they say nothing."""
        if all(token != known for known, _, _ in self._probes):
            return False
        while True:
            known, total, control = self._probes.popleft()
            if known == token:
                self._read_total, self._read_control = total, control
                return True

    def take(self) -> bytes | None:
        """The next message; None when nothing waits. Small frames are joined up to MESSAGE_TARGET_BYTES."""
        queue = self._queue
        if not queue:
            return None
        size, parts, is_message = queue.popleft()
        while queue and not (is_message and size > ALONE_BYTES):
            more = queue[0]
            # A small frame rides along with a large one: that costs nothing, a message of its own does.
            if size + more.size > MESSAGE_TARGET_BYTES and min(size, more.size) > SMALL_BYTES:
                break
            size += more.size
            if size > MESSAGE_BYTES or (more.is_message and more.size > ALONE_BYTES):
                break
            parts += queue.popleft().parts
            is_message = False
        first = parts[0]
        return first if is_message and isinstance(first, bytes) else b"".join(parts)

    def clear(self) -> None:
        """Drops whatever was not yet sent."""
        self._queue.clear()
