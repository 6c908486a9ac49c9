"""A client's side of one connection, without I/O: messages in, messages out, credit in both directions.

Peers are numbered by the other end: the peers of a worker or stage are streams (backbones), a backbone's peers are
sessions (workers, stages). What a peer's credit does not allow yet waits in that peer's outbox. A new connection is a
new object: nothing survives, because the relay knows nothing of the old one either.
"""

from collections import deque
from collections.abc import Callable, Mapping

from relay.credit import ReceiveWindow, SendWindow, body_cost, cost
from relay.errors import Rejected
from relay.frames import Body, Frame, FrameType, Role, decode_frames, encode_frame, split_frame, take_message
from relay.messages import Reassembler, credit_frame, hello_frame, pong_frame, read_credit, read_refusal, read_welcome
from relay.protocol import Action, Phase, dialled, receive
from relay.records import Welcome

# Answers that wait for credit; above this the peer gets none for new requests either.
OUTBOX_BYTES = 16 * 1024 * 1024
# A window has room for this many of the largest answers, so that none waits a round trip for a grant in its middle.
ANSWERS_AHEAD = 4
# By how much the windows of all peers of a backbone may grow together: what they send unread lies at the relay.
WIDER_BYTES = 64 * 1024 * 1024


class Peer:
    """Credit in both directions, and what waits for it."""

    __slots__ = ("incoming", "initial", "outbox", "outbox_bytes", "outgoing")

    def __init__(self, role: Role, welcome: Welcome, *, is_stage: bool = False) -> None:
        """is_stage: of a backbone: the peer is a stage, whose windows are larger."""
        initial, limit = welcome.credit_bytes, welcome.credit_limit_bytes
        if is_stage and welcome.stage_credit_bytes:
            initial, limit = welcome.stage_credit_bytes, welcome.stage_credit_limit_bytes
        self.initial = initial
        self.outgoing = SendWindow(initial, limit)
        self.incoming = ReceiveWindow(initial, initial if role is Role.BACKBONE else limit)
        self.outbox: deque[Frame] = deque()
        self.outbox_bytes = 0

    def flush(self) -> list[Frame]:
        """The waiting frames that credit allows now, in order."""
        ready = []
        while self.outbox and self.outgoing.take(cost(self.outbox[0])):
            ready.append(self.outbox.popleft())
            self.outbox_bytes -= len(ready[-1].body)
        return ready


class ClientSession:
    """`on_frame` gets DISPATCH, CHALLENGE, CANCEL (worker), STEP, CANCEL (stage) or ROSTER, RESULT, ERROR, STATUS,
    DRAIN (backbone).

    With a `reassembler`, bodies in chunks arrive whole. `on_queued` is called when `take` has something to give.
    """

    def __init__(
        self,
        role: Role,
        hello: Mapping[str, object],
        on_frame: Callable[[Frame], None],
        reassembler: Reassembler | None = None,
        on_queued: Callable[[], None] = lambda: None,
    ) -> None:
        self.welcome: Welcome | None = None
        self._role = role
        # Workers and stages answer requests, backbones make them.
        self._answers = role is not Role.BACKBONE
        self._on_frame = on_frame
        self._reassembler = reassembler
        self._on_queued = on_queued
        self._state = dialled(role)
        self._opening: bytes | None = bytes([role]) + encode_frame(hello_frame(hello))
        self._queue: deque[bytes] = deque()
        self._peers: dict[int, Peer] = {}
        self._due: set[int] = set()
        self._wider_bytes = WIDER_BYTES

    # --- messages -----------------------------------------------------------------------------------------------------

    def receive(self, message: Body) -> None:
        """One message from the relay. Raises Rejected when it refused us, other RelayErrors when it broke the rules."""
        for frame in decode_frames(message):
            self._state, actions = receive(self._state, frame)
            for action in actions:
                self._act(action, frame)

    def take(self) -> bytes | None:
        """The next message to send, or None. Whatever credit is due travels with it."""
        if self._opening is not None:
            opening, self._opening = self._opening, None
            return opening
        if self._queue:
            self._queue_due()
        return take_message(self._queue)

    # --- frames -------------------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self.welcome is not None and self._state.phase is not Phase.CLOSED

    def send(self, frame: Frame) -> bool:
        """Queues a frame, in chunks when it is large; a counted one waits for its peer's credit.

        False: dropped, because there is no session, or the frame answers a request of an earlier session or of a peer
        that is gone.
        """
        if not self.is_open:
            return False
        if not cost(frame):
            self._enqueue(frame)
            return True
        peer = self._peers.get(self._peer_of(frame))
        if peer is None or (self._answers and frame.session != self._number):
            return False
        for chunk in split_frame(frame):
            peer.outbox.append(chunk)
            peer.outbox_bytes += len(chunk.body)
        self._enqueue(*peer.flush())
        return True

    def try_send(self, frame: Frame) -> bool:
        """Queues all of a counted frame now, or nothing at all when the peer's credit does not cover it."""
        if not self.is_open:
            return False
        peer = self._peer(self._peer_of(frame), is_stage=frame.type is FrameType.STEP)
        if peer.outbox or not peer.outgoing.take(body_cost(len(frame.body))):
            return False
        if not self._answers:
            # The relay would write it; a frame that says it already is passed on without a copy.
            frame = frame._replace(stream=self._number)
        self._enqueue(*split_frame(frame))
        return True

    def expect(self, number: int, size: int) -> None:
        """A request that was just sent to this peer has an answer of up to `size` bytes: its window opens for that.

        The grant travels behind the request, so the answer needs none on its way.
        """
        peer = self._peers.get(number)
        if peer is None or self.welcome is None:
            return
        wanted = min(self.welcome.credit_limit_bytes, ANSWERS_AHEAD * size)
        more = min(wanted - peer.incoming.target, self._wider_bytes)
        if more > 0:
            self._wider_bytes -= more
            peer.incoming.widen(peer.incoming.target + more)
            self._due.add(number)

    def consumed(self, frame: Frame) -> None:
        """The bytes of a delivered frame (whole or chunk) are no longer held here: its sender may send as many more.

        The grant leaves when a quarter of the window is due, else with the next message or at `grant_due`.

        Frames of an earlier session, and of peers that are gone, are ignored.
        """
        number = self._peer_of(frame)
        peer = self._peers.get(number)
        mine = frame.session if self._answers else frame.stream
        if peer is None or mine != self._number or not cost(frame):
            return
        peer.incoming.consume(body_cost(len(frame.body)))
        self._due.add(number)
        if peer.incoming.is_urgent():
            self._queue_due()
            self._on_queued()

    def grant_due(self) -> None:
        """Queues all credit that is due; without this it waits for the next message or for a quarter of the window."""
        self._queue_due()
        if self._queue:
            self._on_queued()

    def forget_peer(self, number: int) -> None:
        """The peer is gone, with everything that waited for it."""
        peer = self._peers.pop(number, None)
        self._due.discard(number)
        if peer is not None and not self._answers:
            self._wider_bytes += peer.incoming.target - peer.initial
        if self._answers and self._reassembler is not None:
            self._reassembler.discard_stream(number)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _act(self, action: Action, frame: Frame) -> None:
        match action:
            case Action.DELIVER:
                self._deliver(frame)
            case Action.UPDATE_ROSTER:
                self._on_frame(frame)
            case Action.GRANT:
                self._grant(frame)
            case Action.ANSWER_PING:
                self._enqueue(pong_frame(frame))
            case Action.START:
                self.welcome = read_welcome(frame)
            case Action.STOP:
                refusal = read_refusal(frame)
                raise Rejected(refusal.code, refusal.message or refusal.code)
            case Action.NOTE_PONG | Action.MOVE_AWAY:
                return
            case _:
                raise AssertionError(f"a client has no {action}")

    @property
    def is_moving(self) -> bool:
        """Whether the relay asked to go elsewhere."""
        return self._state.phase is Phase.DRAINING

    def _deliver(self, frame: Frame) -> None:
        if cost(frame):
            self._peer(self._peer_of(frame))
        whole: Frame | None = frame
        if self._reassembler is not None:
            whole = self._reassembler.add(frame)
        if frame.type is FrameType.CANCEL and not frame.request:
            self.forget_peer(frame.stream)
        if whole is not None:
            self._on_frame(whole)

    def _grant(self, frame: Frame) -> None:
        """Grants of a peer that is not known here are for requests that it refused or that were dropped: no harm."""
        peer = self._peers.get(self._peer_of(frame))
        if peer is not None:
            peer.outgoing.grant(read_credit(frame))
            self._enqueue(*peer.flush())

    @property
    def _number(self) -> int:
        """Our own number at the relay."""
        return 0 if self.welcome is None else self.welcome.session or self.welcome.stream

    def _peer_of(self, frame: Frame) -> int:
        return frame.stream if self._answers else frame.session

    def _peer(self, number: int, *, is_stage: bool = False) -> Peer:
        peer = self._peers.get(number)
        if peer is None:
            assert self.welcome is not None
            peer = self._peers[number] = Peer(self._role, self.welcome, is_stage=is_stage)
        return peer

    def _enqueue(self, *frames: Frame) -> None:
        if frames:
            self._queue.extend(map(encode_frame, frames))
            self._on_queued()

    def _queue_due(self) -> None:
        """Queues the grants that are due, except to peers that do not take what they asked for."""
        for number in list(self._due):
            peer = self._peers[number]
            if peer.outbox_bytes <= OUTBOX_BYTES:
                self._due.discard(number)
                due = peer.incoming.take_due()
                grant = credit_frame(due, stream=number) if self._answers else credit_frame(due, session=number)
                self._queue.append(encode_frame(grant))
