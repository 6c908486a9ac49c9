"""The routing table of one relay process: who is connected, who may send how much to whom, which frame goes where.

No I/O, no locks: one event loop owns it and every call returns at once. Frames are handed to a `Link` (the connection's
bounded queue). Faults of the sender raise ProtocolViolation; whatever goes wrong at the receiver is the receiver's.
"""

import secrets
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from relay.codes import CloseCode, ErrorCode, RejectCode
from relay.credit import CREDIT_BYTES, STAGE_CREDIT_BYTES, STAGE_CREDIT_LIMIT_BYTES, SendWindow, cost
from relay.errors import CreditExceeded, ProtocolViolation
from relay.frames import FLAG_MORE, FLAG_RELAY, HEADER_BYTES, Body, Frame, FrameType, Role
from relay.messages import cancel_frame, credit_frame, error_frame, read_credit, read_lease, roster_frames
from relay.records import Json, Replica, RosterSession

# Requests of one backbone whose later chunks are still to come.
MAX_OPEN_REQUESTS = 1024
RELEASE_BYTES = 64 * 1024
# Frames as they came, and the message that they are a part of.
Came = tuple[Body, bytes]
REPLACED_MESSAGE = "another connection of this node took over; run one worker per node token"


class Link(Protocol):
    """One connection, as the table sees it. No call may raise or wait.

    read_bytes: what the client has shown to have read since it came; unread_bytes: what it was sent and has not.
    """

    @property
    def read_bytes(self) -> int: ...

    @property
    def unread_bytes(self) -> int: ...

    def probe(self) -> None:
        """Asks the client to show what it has read by now."""
        ...

    def push(self, frame: Frame, *, counted: bool = False) -> None: ...

    def pass_on(self, frames: Body, message: bytes) -> None:
        """Sends counted frames as they came: `frames` is a part of `message`, or all of it."""
        ...

    def end(self, code: CloseCode, message: str, reject: RejectCode | None = None) -> None: ...


@dataclass
class Pair:
    """What one backbone and one worker may still send each other. held: grants of the worker not yet passed on.

    initial: what either could send before the other had granted anything.
    """

    to_worker: SendWindow = field(default_factory=SendWindow)
    to_backbone: SendWindow = field(default_factory=SendWindow)
    held: int = 0
    initial: int = CREDIT_BYTES

    @classmethod
    def of(cls, role: Role) -> "Pair":
        """With a worker, or with a stage, whose windows are larger."""
        if role is not Role.STAGE:
            return cls()
        sizes = (STAGE_CREDIT_BYTES, STAGE_CREDIT_LIMIT_BYTES)
        return cls(SendWindow(*sizes), SendWindow(*sizes), initial=STAGE_CREDIT_BYTES)


@dataclass
class Worker:
    """One worker session, or a stage's. `replicas`: what it holds and the market has leased to it, with the market's
    state."""

    session: int
    node_id: str
    name: str
    build: str
    kernel_class: str
    capabilities: Json
    link: Link
    replicas: tuple[Replica, ...] = ()
    draining: bool = False
    role: Role = Role.WORKER
    pairs: dict[int, Pair] = field(default_factory=dict)
    _leases: frozenset[tuple[int, int]] = frozenset()

    def __post_init__(self) -> None:
        self.set_replicas(self.replicas)

    def set_replicas(self, replicas: tuple[Replica, ...]) -> None:
        self.replicas = replicas
        self._leases = frozenset((replica.layer, replica.claim_id) for replica in replicas)

    def holds(self, layer: int, claim_id: int) -> bool:
        return (layer, claim_id) in self._leases

    def pair(self, stream: int) -> Pair:
        pair = self.pairs.get(stream)
        if pair is None:
            pair = self.pairs[stream] = Pair.of(self.role)
        return pair

    def entry(self) -> RosterSession:
        return RosterSession(
            session=self.session,
            node_id=self.node_id,
            kernel_class=self.kernel_class,
            name=self.name,
            capabilities=self.capabilities,
            replicas=self.replicas,
            role="stage" if self.role is Role.STAGE else "worker",
        )


@dataclass
class Backbone:
    """One backbone connection; it sees the workers of its build, and the stages of another. `open`: (session, request)
    that await chunks."""

    stream: int
    build: str
    link: Link
    stages: str = ""
    open: set[tuple[int, int]] = field(default_factory=set)

    def sees(self, worker: Worker) -> bool:
        return worker.build == (self.stages if worker.role is Role.STAGE else self.build)


class Roster:
    """All sessions and streams of one process. `counters` are read by whoever shows metrics."""

    def __init__(self) -> None:
        self.workers: dict[int, Worker] = {}
        self.backbones: dict[int, Backbone] = {}
        self.counters: Counter[str] = Counter()
        self.boot = secrets.token_hex(8)
        self._by_node: dict[str, Worker] = {}
        # A random start: numbers of an earlier boot, still in somebody's hands, name nobody now.
        self._last_number = secrets.randbelow(1 << 31)

    def new_number(self) -> int:
        """A session or stream number, never 0, unique in this boot."""
        self._last_number = self._last_number % ((1 << 32) - 1) + 1
        return self._last_number

    # --- who is here --------------------------------------------------------------------------------------------------

    def join_worker(self, worker: Worker) -> None:
        """A session opens; an older one of the same node ends, and its owner is told why."""
        earlier = self._by_node.get(worker.node_id)
        if earlier is not None:
            self.counters["replaced"] += 1
            self.leave_worker(earlier.session)
            earlier.link.end(CloseCode.REPLACED, REPLACED_MESSAGE, RejectCode.REPLACED)
        self.workers[worker.session] = self._by_node[worker.node_id] = worker
        self._tell(worker, joined=[worker.entry()])

    def join_backbone(self, backbone: Backbone) -> None:
        self.backbones[backbone.stream] = backbone
        seen = [worker.entry() for worker in self.workers.values() if backbone.sees(worker) and not worker.draining]
        for frame in roster_frames(True, seen):
            backbone.link.push(frame)

    def leave_worker(self, session: int) -> None:
        """Does nothing for a session that has left already."""
        worker = self.workers.pop(session, None)
        if worker is None:
            return
        if self._by_node.get(worker.node_id) is worker:
            del self._by_node[worker.node_id]
        for backbone in self._backbones_of(worker):
            backbone.open = {key for key in backbone.open if key[0] != session}
        self._tell(worker, left=[session])

    def leave_backbone(self, stream: int) -> None:
        """Does nothing for a stream that has left already. Its workers drop what they still compute for it."""
        backbone = self.backbones.pop(stream, None)
        if backbone is None:
            return
        # A list: a push may end a connection, which leaves the table.
        for worker in list(self.workers.values()):
            if worker.pairs.pop(stream, None) is not None:
                worker.link.push(cancel_frame(0, session=worker.session, stream=stream))

    def set_replicas(self, session: int, replicas: tuple[Replica, ...]) -> None:
        """What a session may be asked for now; backbones hear of it when it changed."""
        worker = self.workers.get(session)
        if worker is None or worker.replicas == replicas:
            return
        worker.set_replicas(replicas)
        if not worker.draining:
            self._tell(worker, joined=[worker.entry()])

    def drain(self, session: int) -> None:
        """The worker takes no new work; it stays until its answers are out."""
        worker = self.workers.get(session)
        if worker is not None and not worker.draining:
            worker.draining = True
            self.broadcast(session, Frame(FrameType.DRAIN))

    def broadcast(self, session: int, frame: Frame) -> None:
        """Sends a worker's frame, stamped, to every backbone of its build."""
        worker = self.workers.get(session)
        if worker is not None:
            for backbone in self._backbones_of(worker):
                backbone.link.push(frame._replace(session=session, stream=backbone.stream))

    # --- frames -------------------------------------------------------------------------------------------------------
    # A run is one frame or more that came side by side in one message with the same kind, session and stream. Where
    # nothing in them has to change they go on as they are: that costs no copy of theirs, and nothing per frame.

    def to_worker(self, stream: int, run: Sequence[Frame], came: Came | None = None) -> None:
        """Routes a run of requests or CANCEL. Raises ProtocolViolation when the backbone is at fault."""
        backbone = self.backbones.get(stream)
        if backbone is None:
            return
        first = run[0]
        worker = self.workers.get(first.session)
        if worker is None or not backbone.sees(worker):
            for frame in run:
                self._refuse(backbone, frame, ErrorCode.NO_SESSION, "this session is not connected")
        elif first.type is FrameType.CANCEL:
            for frame in run:
                backbone.open.discard((frame.session, frame.request))
                worker.link.push(frame._replace(stream=stream))
        elif allowed := [frame for frame in run if self._may_pass(backbone, worker, frame)]:
            size, pair = sum(map(cost, allowed)), worker.pair(stream)
            if not pair.to_worker.take(size):
                raise CreditExceeded(f"more than session {first.session} granted")
            self.counters["frames_to_workers"] += len(allowed)
            self.counters["bytes_to_workers"] += size
            if came is not None and first.stream == stream and len(allowed) == len(run):
                worker.link.pass_on(*came)
            else:
                for frame in allowed:
                    worker.link.push(frame._replace(stream=stream), counted=True)
            if pair.held and pair.to_worker.remaining < pair.initial // 2:
                self._release(worker, backbone, pair)

    def to_backbone(self, session: int, run: Sequence[Frame], came: Came | None = None) -> None:
        """Routes a run of RESULT or ERROR to the stream in its headers. Raises ProtocolViolation when the worker is at
        fault."""
        worker = self.workers.get(session)
        if worker is None:
            return
        first = run[0]
        backbone = self.backbones.get(first.stream)
        if backbone is None or not backbone.sees(worker):
            # A backbone that left a moment ago. Its streams cost no credit, and nothing is kept.
            self.counters["dropped_no_stream"] += len(run)
            return
        size = sum(map(cost, run))
        if not worker.pair(first.stream).to_backbone.take(size):
            raise CreditExceeded(f"more than the backbone of stream {first.stream} granted")
        self.counters["frames_to_backbones"] += len(run)
        self.counters["bytes_to_backbones"] += size
        if came is not None and first.session == session:
            backbone.link.pass_on(*came)
        else:
            for frame in run:
                backbone.link.push(frame._replace(session=session), counted=True)

    def grant_by_worker(self, session: int, frame: Frame) -> None:
        """A worker consumed what a backbone sent. Raises ProtocolViolation for a grant above the limit."""
        worker, backbone = self.workers.get(session), self.backbones.get(frame.stream)
        if worker is not None and backbone is not None and frame.stream in worker.pairs:
            pair, granted = worker.pair(frame.stream), read_credit(frame)
            if pair.to_worker.remaining + pair.held + granted > pair.to_worker.limit:
                raise CreditExceeded(f"a grant of {granted} bytes opens more than {pair.to_worker.limit}")
            pair.held += granted
            self._release(worker, backbone, pair)

    def release_grants(self, session: int) -> None:
        """The worker has shown that it reads: what it granted and the relay held back may go on."""
        worker = self.workers.get(session)
        if worker is not None:
            for stream, pair in list(worker.pairs.items()):
                backbone = self.backbones.get(stream)
                if pair.held and backbone is not None:
                    self._release(worker, backbone, pair)

    def grant_by_backbone(self, stream: int, frame: Frame) -> None:
        """A backbone consumed what a worker sent. Raises ProtocolViolation for a grant above the limit."""
        worker = self.workers.get(frame.session)
        if stream in self.backbones and worker is not None and stream in worker.pairs:
            worker.pair(stream).to_backbone.grant(read_credit(frame))
            worker.link.push(frame._replace(stream=stream))

    # --- inside -------------------------------------------------------------------------------------------------------

    def _release(self, worker: Worker, backbone: Backbone, pair: Pair) -> None:
        """Passes a worker's grants on as far as what it has read covers them: a client that grants and never reads
        would otherwise pile up its whole limit in this process, and again after each grant."""
        room = pair.initial + worker.link.read_bytes - worker.link.unread_bytes - pair.to_worker.remaining
        passed = min(pair.held, room)
        # In pieces that are worth a frame, and no probe for less than that: each PONG comes back to here.
        if passed >= min(pair.held, RELEASE_BYTES) and passed >= HEADER_BYTES:
            pair.held -= passed
            pair.to_worker.grant(passed)
            backbone.link.push(credit_frame(passed, session=worker.session, stream=backbone.stream))
        if pair.held and worker.link.unread_bytes >= RELEASE_BYTES:
            worker.link.probe()

    def _may_pass(self, backbone: Backbone, worker: Worker, frame: Frame) -> bool:
        """Whether the worker has leased what the request names; later chunks follow their first."""
        key = (frame.session, frame.request)
        if frame.chunk:
            allowed = key in backbone.open
        else:
            is_asked_right = (frame.type is FrameType.STEP) == (worker.role is Role.STAGE)
            allowed = is_asked_right and worker.holds(frame.layer, read_lease(frame).claim_id)
            if not is_asked_right:
                self._refuse(backbone, frame, ErrorCode.WRONG_ROLE, "steps are for stages, and nothing else is")
            elif not allowed:
                self._refuse(backbone, frame, ErrorCode.NOT_LEASED, "the session holds no such claim in this layer")
        if not allowed:
            # The relay did not count these bytes, the backbone did.
            backbone.link.push(credit_frame(cost(frame), session=frame.session))
        if not allowed or not frame.flags & FLAG_MORE:
            backbone.open.discard(key)
        elif len(backbone.open) < MAX_OPEN_REQUESTS:
            backbone.open.add(key)
        else:
            raise ProtocolViolation(f"more than {MAX_OPEN_REQUESTS} requests await chunks")
        return allowed

    def _refuse(self, backbone: Backbone, frame: Frame, code: ErrorCode, message: str) -> None:
        """Answers a request in the worker's place; chunks after the first have been answered already."""
        self.counters[f"refused_{code}"] += 1
        if frame.type is not FrameType.CANCEL and not frame.chunk:
            stamped = frame._replace(stream=backbone.stream)
            backbone.link.push(error_frame(stamped, code, message, FLAG_RELAY))

    def _backbones_of(self, worker: Worker) -> list[Backbone]:
        return [backbone for backbone in self.backbones.values() if backbone.sees(worker)]

    def _tell(self, about: Worker, joined: Iterable[RosterSession] = (), left: Iterable[int] = ()) -> None:
        backbones = self._backbones_of(about)
        if backbones:
            for frame in roster_frames(False, list(joined), list(left)):
                for backbone in backbones:
                    backbone.link.push(frame)
