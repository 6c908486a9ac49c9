"""Credit: how many bytes one side may send to one peer before that peer has consumed what came earlier.

Counted are whole frames, header and body, of DISPATCH, CHALLENGE, STEP, RESULT and ERROR: were only bodies counted, a
flood of the smallest frames would be almost free. Frames that the relay makes itself (FLAG_RELAY) are not counted.
There is one pair of windows per (backbone connection, session); the sender keeps one, the relay a second that it
enforces, and the relay's is never the smaller one because it counts a frame later and a grant earlier.
"""

from relay.errors import CreditExceeded
from relay.frames import CHUNK_BYTES, FLAG_RELAY, HEADER_BYTES, Frame, FrameType

# A new peer may send this much. Twenty strangers that never read hold at most 20 MiB of the relay's memory.
CREDIT_BYTES = 1024 * 1024
# A receiver may open its window up to this. Workers do: a request must fit into their window as a whole. Backbones do
# for workers of whom they ask large answers (`ClientSession.expect`): a thousand times this would be too much.
CREDIT_LIMIT_BYTES = 8 * 1024 * 1024
# The same of a stage: 512 rows of 8,192 float32 and what comes with them, before it has granted anything; and steps of
# several rings at once. A backbone sends a stage that has proved nothing only a small challenge.
STAGE_CREDIT_BYTES = 17 * 1024 * 1024
STAGE_CREDIT_LIMIT_BYTES = 64 * 1024 * 1024
COUNTED = frozenset({FrameType.DISPATCH, FrameType.CHALLENGE, FrameType.STEP, FrameType.RESULT, FrameType.ERROR})


def cost(frame: Frame) -> int:
    """Bytes of credit that one frame takes; 0 for kinds that are not counted."""
    if frame.type not in COUNTED or frame.flags & FLAG_RELAY:
        return 0
    return HEADER_BYTES + len(frame.body)


def body_cost(size: int) -> int:
    """Bytes of credit that a body of `size` bytes takes, with the header of each chunk."""
    return size + HEADER_BYTES * max(1, -(-size // CHUNK_BYTES))


class SendWindow:
    """What may still be sent to one peer, in bytes."""

    __slots__ = ("limit", "remaining")

    def __init__(self, initial: int = CREDIT_BYTES, limit: int = CREDIT_LIMIT_BYTES) -> None:
        self.remaining = initial
        self.limit = limit

    def take(self, size: int) -> bool:
        """Spends `size` bytes, or nothing at all when fewer are left."""
        if size > self.remaining:
            return False
        self.remaining -= size
        return True

    def grant(self, size: int) -> None:
        """Raises CreditExceeded, a fault of the granting side, when more than the limit would be open."""
        if self.remaining + size > self.limit:
            raise CreditExceeded(f"a grant of {size} bytes opens more than {self.limit}")
        self.remaining += size


class ReceiveWindow:
    """What one peer may be granted: all that was consumed, and with the first grant the rest up to `target`.

    A peer that grants has shown that it reads, so it may open its window as far as its own memory allows.
    """

    __slots__ = ("due", "size", "target")

    def __init__(self, initial: int = CREDIT_BYTES, target: int = CREDIT_LIMIT_BYTES) -> None:
        self.size = initial
        self.target = target
        self.due = 0

    def consume(self, size: int) -> None:
        self.due += size + self.target - self.size
        self.size = self.target

    def widen(self, target: int) -> None:
        """Opens the window up to `target` with the next grant; it never shrinks."""
        if target > self.target:
            self.target = target
            self.consume(0)

    def is_urgent(self) -> bool:
        """Whether so much is due that the peer may soon have to wait for it."""
        return self.due * 4 >= self.size

    def take_due(self) -> int:
        """The grant to send now; the caller sends it."""
        due, self.due = self.due, 0
        return due
