"""One client of the relay: its state, its queue, its three small tasks. Knows nothing of Channels or of the market.

`receive` is synchronous and quick: what takes time (look-ups, sending) is done by the tasks, so that one socket never
holds up another. Everything runs in one event loop.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from time import monotonic

from relay.admission import (
    Authenticator,
    Standing,
    admit_backbone,
    admit_worker,
    check_hello,
    check_standing,
    usable_replicas,
)
from relay.codes import CloseCode, RejectCode
from relay.credit import (
    COUNTED,
    CREDIT_BYTES,
    CREDIT_LIMIT_BYTES,
    STAGE_CREDIT_BYTES,
    STAGE_CREDIT_LIMIT_BYTES,
)
from relay.errors import (
    BadPreamble,
    CreditExceeded,
    FrameError,
    MarketAway,
    MessageError,
    ProtocolViolation,
    Rejected,
)
from relay.frames import HEADER_BYTES, Body, Frame, Role, decode_frames
from relay.messages import pong_frame, read_status, reject_frame, welcome_frame
from relay.node_presence import NodePresence
from relay.outbound import BACKBONE_LIMITS, STAGE_LIMITS, WORKER_LIMITS, Outbound
from relay.protocol import Action, State, accepted, closed, read_preamble, receive_run, welcomed
from relay.records import Hello, Replica, SessionRole, Welcome
from relay.roster import REPLACED_MESSAGE, Backbone, Came, Roster, Worker

logger = logging.getLogger(__name__)

HELLO_SECONDS = 10.0
MISSED_PINGS = 3
# A worker may report as often as it likes; the market is asked this often at most.
STATUS_SECONDS = 1.0
# Reports between two of those questions; whoever sends more means no good.
MAX_REPORTS = 100
# PINGs of a client between two of ours (ours send none): answers to them cost the peer nothing.
MAX_PINGS = 1000
MAX_CONNECTIONS = 4096
# Frames side by side in one message that are handled together.
_ALIKE = attrgetter("type", "session", "stream")


@dataclass(frozen=True)
class Timing:
    """Seconds; the first two come from the settings."""

    ping_seconds: float
    recheck_seconds: float
    hello_seconds: float = HELLO_SECONDS


Send = Callable[[bytes], Awaitable[None]]
Close = Callable[[int, str], Awaitable[None]]


class Connection:
    """Made when a socket opens; `start`, then `receive` per message, then `leave`. It is the `Link` of the roster."""

    def __init__(
        self,
        roster: Roster,
        authenticator: Authenticator,
        timing: Timing,
        send: Send,
        close: Close,
        relays: Callable[[], tuple[str, ...]] = tuple,
    ) -> None:
        """relays: where workers find the relays of this server, for WELCOME."""
        self._relays = relays
        self._roster = roster
        self._authenticator = authenticator
        self._timing = timing
        self._send = send
        self._close = close
        self._state: State | None = None
        self._role: Role | None = None
        self._outbound = Outbound(WORKER_LIMITS)
        self._hello: Hello | None = None
        self._presence: NodePresence | None = None
        self._number = 0
        self._held: tuple[Replica, ...] = ()
        self._status: Frame | None = None
        self._reports = 0
        self._pings = 0
        self._heard = monotonic()
        self._has_read = monotonic()
        self._ending: tuple[CloseCode, str] | None = None
        self._writable = asyncio.Event()
        self._recheck_due = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    # --- called by the socket's owner ---------------------------------------------------------------------------------

    def start(self) -> None:
        self._spawn(self._write())
        self._spawn(self._expect_hello())
        if len(self._roster.workers) + len(self._roster.backbones) >= MAX_CONNECTIONS:
            self.end(CloseCode.REJECTED, "this relay is full; try again later", RejectCode.OVERLOADED)

    def receive(self, message: Body) -> None:
        """One binary message. After the end of the session whatever still arrives is discarded."""
        if self._ending is not None:
            return
        self._heard = monotonic()
        try:
            if self._state is None:
                self._role, message = read_preamble(message)
                self._state = accepted(self._role)
                if not message:
                    return
            self._handle_all(message)
        except BadPreamble as error:
            self.end(CloseCode.REJECTED, str(error), RejectCode.BAD_PREAMBLE)
        except Rejected as error:
            self.end(CloseCode.REJECTED, str(error), RejectCode(error.code))
        except CreditExceeded as error:
            self._roster.counters["closed_credit"] += 1
            self.end(CloseCode.EXCESS, str(error), RejectCode.TOO_MUCH)
        except (FrameError, MessageError, ProtocolViolation) as error:
            if self._hello is None:
                self.end(CloseCode.REJECTED, f"HELLO cannot be read: {error}", RejectCode.BAD_HELLO)
            else:
                self.end(CloseCode.VIOLATION, str(error), RejectCode.PROTOCOL_VIOLATION)

    def refuse_text(self) -> None:
        self.end(CloseCode.VIOLATION, "binary messages only", RejectCode.PROTOCOL_VIOLATION)

    def leave(self) -> None:
        """The socket is gone, or its owner is. Safe to call at any time and again."""
        self._forget()
        if self._ending is None:
            self._ending = (CloseCode.NORMAL, "")
        self._cancel_tasks()

    async def note_left(self) -> None:
        """Tells the market that the worker's socket closed, unless a newer session of the same device is there."""
        if self._presence is not None:
            await self._presence.mark_left()

    # --- the roster's Link --------------------------------------------------------------------------------------------

    @property
    def read_bytes(self) -> int:
        return self._outbound.read_bytes

    @property
    def unread_bytes(self) -> int:
        return self._outbound.unread_bytes

    def probe(self) -> None:
        if self._ending is None and self._outbound.probe_new():
            self._writable.set()

    def push(self, frame: Frame, *, counted: bool = False) -> None:
        if self._ending is None:
            self._queued(self._outbound.push(frame, counted=counted))

    def pass_on(self, frames: Body, message: bytes) -> None:
        if self._ending is None:
            self._queued(self._outbound.pass_on(frames, message))

    def _queued(self, is_read: bool) -> None:
        if is_read:
            self._writable.set()
            return
        self._roster.counters["closed_slow"] += 1
        self._outbound.clear()
        message = f"{self._outbound.unread_bytes} bytes were sent and not read"
        self.end(CloseCode.EXCESS, message, RejectCode.TOO_MUCH)

    def end(self, code: CloseCode, message: str, reject: RejectCode | None = None) -> None:
        """Leaves the roster, sends REJECT where there is a code for it, closes; only the first call counts."""
        if self._ending is not None:
            return
        logger.info("closing %s %s: %s %s", self._name(), code.value, reject or code.name.lower(), message)
        self._forget()
        if reject is not None:
            self._outbound.push(reject_frame(reject, message))
        self._ending = (code, message)
        if self._state is not None:
            self._state = closed(self._state)
        self._writable.set()

    # --- frames -------------------------------------------------------------------------------------------------------

    def _handle_all(self, message: Body) -> None:
        """After the end of the session, even within one message, the state machine discards the rest."""
        frames = decode_frames(message)
        whole = message if type(message) is bytes else None
        if len(frames) == 1:
            self._handle(frames, None if whole is None else (whole, whole))
            return
        view, end = memoryview(message), 0
        for _, alike in groupby(frames, key=_ALIKE):
            run = list(alike)
            start, end = end, end + sum(HEADER_BYTES + len(frame.body) for frame in run)
            if run[0].type in COUNTED:
                self._handle(run, None if whole is None else (view[start:end], whole))
            else:
                for frame in run:
                    self._handle([frame], None)

    def _handle(self, run: list[Frame], came: Came | None) -> None:
        assert self._state is not None
        self._state, actions = receive_run(self._state, run)
        for action in actions:
            self._act(action, run, came)

    def _act(self, action: Action, run: list[Frame], came: Came | None) -> None:
        match action:
            case Action.TO_WORKER:
                self._roster.to_worker(self._number, run, came)
            case Action.TO_BACKBONE:
                self._roster.to_backbone(self._number, run, came)
            case _:
                self._act_alone(action, *run)

    def _act_alone(self, action: Action, frame: Frame) -> None:
        match action:
            case Action.GRANT if self._role is not Role.BACKBONE:
                self._roster.grant_by_worker(self._number, frame)
            case Action.GRANT:
                self._roster.grant_by_backbone(self._number, frame)
            case Action.ANSWER_PING:
                self._pings += 1
                if self._pings > MAX_PINGS:
                    raise CreditExceeded(f"more than {MAX_PINGS} PINGs within {self._timing.ping_seconds:g} seconds")
                self.push(pong_frame(frame))
            case Action.NOTE_PONG:
                if self._outbound.acknowledge(bytes(frame.body)):
                    self._has_read = monotonic()
                    self._roster.release_grants(self._number)
            case Action.RECHECK:
                # Read when the claims are, at most once a second: a flood of reports costs no parsing.
                self._status = frame._replace(body=bytes(frame.body))
                self._recheck_due.set()
                self._reports += 1
                if self._reports > MAX_REPORTS:
                    raise CreditExceeded(f"more than {MAX_REPORTS} reports between two checks")
            case Action.ANNOUNCE_DRAIN:
                self._roster.drain(self._number)
            case Action.AUTHENTICATE:
                self._hello = check_hello(frame)
                self._spawn(self._open(self._hello))
            case _:
                raise AssertionError(f"the relay has no {action}")

    # --- tasks --------------------------------------------------------------------------------------------------------

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _cancel_tasks(self) -> None:
        for task in self._tasks - {asyncio.current_task()}:
            task.cancel()

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("%s: a task failed", self._name(), exc_info=error)
            self.end(CloseCode.RESTART, "the relay failed; connect again")

    async def _write(self) -> None:
        while True:
            await self._writable.wait()
            self._writable.clear()
            while (message := self._outbound.take()) is not None:
                await self._send(message)
            if self._ending is not None:
                code, reason = self._ending
                # A close reason has at most 123 bytes (RFC 6455, section 5.5).
                await self._close(code.value, reason.encode()[:120].decode(errors="ignore"))
                self._cancel_tasks()
                return

    async def _expect_hello(self) -> None:
        await asyncio.sleep(self._timing.hello_seconds)
        if self._hello is None:
            seconds = self._timing.hello_seconds
            self.end(CloseCode.REJECTED, f"no HELLO within {seconds:g} seconds", RejectCode.BAD_HELLO)

    async def _open(self, hello: Hello) -> None:
        """Checks the credentials, then joins the roster; WELCOME is the first frame that a client reads."""
        number = self._roster.new_number()
        try:
            if self._role is Role.BACKBONE:
                await admit_backbone(hello, self._authenticator)
            else:
                role: SessionRole = "stage" if self._role is Role.STAGE else "worker"
                standing = await admit_worker(hello, self._authenticator, role)
                await self._authenticator.take_over(standing.node.node_id, f"{self._roster.boot}/{number}")
        except Rejected as error:
            self.end(CloseCode.REJECTED, str(error), RejectCode(error.code))
            return
        except MarketAway as error:
            logger.debug("the market could not be asked about a new session: %s", error)
            self.end(CloseCode.REJECTED, "the market cannot be asked now; try again", RejectCode.OVERLOADED)
            return
        except Exception:
            logger.exception("the market could not be asked about a new session")
            self.end(CloseCode.REJECTED, "the market cannot be asked now; try again", RejectCode.OVERLOADED)
            return
        if self._ending is not None:
            return
        assert self._state is not None
        self._state = welcomed(self._state)
        self._number = number
        self.push(welcome_frame(self._welcome()))
        if self._role is Role.BACKBONE:
            self._outbound.limits = BACKBONE_LIMITS
            self._roster.join_backbone(Backbone(self._number, hello.build, self, hello.stages))
        else:
            self._outbound.limits = STAGE_LIMITS if self._role is Role.STAGE else WORKER_LIMITS
            self._join_worker(hello, standing)
        self._spawn(self._keep_alive())
        self._spawn(self._recheck())

    def _welcome(self) -> Welcome:
        usual, of_stages = (CREDIT_BYTES, CREDIT_LIMIT_BYTES), (STAGE_CREDIT_BYTES, STAGE_CREDIT_LIMIT_BYTES)
        ping_seconds = self._timing.ping_seconds
        if self._role is Role.BACKBONE:
            return Welcome(0, self._number, ping_seconds, *usual, (), *of_stages)
        credit = of_stages if self._role is Role.STAGE else usual
        return Welcome(self._number, 0, ping_seconds, *credit, self._relays())

    def _join_worker(self, hello: Hello, standing: Standing) -> None:
        node = standing.node
        self._presence = NodePresence(self._authenticator, node.node_id, f"{self._roster.boot}/{self._number}")
        self._held = hello.replicas
        worker = Worker(
            session=self._number,
            node_id=node.node_id,
            name=hello.name or node.name,
            build=hello.build,
            kernel_class=hello.kernel_class,
            capabilities=hello.capabilities,
            link=self,
            replicas=usable_replicas(hello.replicas, standing.claims, hello.build),
            role=self._role or Role.WORKER,
        )
        self._roster.join_worker(worker)

    async def _keep_alive(self) -> None:
        """Pings; ends a session of which nothing was heard while three pings went out; tells the market who is here."""
        while True:
            if self._presence is not None:
                await self._presence.mark_seen(self._heard)
            self._outbound.probe()
            self._writable.set()
            self._pings = 0
            await asyncio.sleep(self._timing.ping_seconds)
            patience = MISSED_PINGS * self._timing.ping_seconds
            if monotonic() - self._heard >= patience:
                # Before the close, for which a server may wait long where nobody answers.
                await self.note_left()
                self.end(CloseCode.SILENT, f"nothing was heard during {MISSED_PINGS} pings")
                return
            if monotonic() - self._has_read >= patience:
                message = f"{self.unread_bytes} bytes were sent, and nothing was read during {MISSED_PINGS} pings"
                self.end(CloseCode.SILENT, message)
                return

    async def _recheck(self) -> None:
        """Asks the market again, at intervals and when the worker reports a change; the roster follows."""
        assert self._hello is not None
        while True:
            try:
                async with asyncio.timeout(self._timing.recheck_seconds):
                    await self._recheck_due.wait()
            except TimeoutError:
                logger.debug("%s: regular check", self._name())
            self._recheck_due.clear()
            await self._check_once(self._hello)
            if self._ending is not None:
                return
            await asyncio.sleep(min(STATUS_SECONDS, self._timing.recheck_seconds))

    async def _check_once(self, hello: Hello) -> None:
        status, self._status, self._reports = self._status, None, 0
        try:
            if status is not None:
                self._held = read_status(status).replicas
            if self._role is Role.BACKBONE:
                await admit_backbone(hello, self._authenticator)
                return
            standing = check_standing(await self._authenticator.standing(hello.token))
            if self._presence is not None and not await self._presence.is_newest():
                self.end(CloseCode.REPLACED, REPLACED_MESSAGE, RejectCode.REPLACED)
                return
        except Rejected as error:
            self.end(CloseCode.REVOKED, str(error), RejectCode(error.code))
            return
        except MessageError as error:
            self.end(CloseCode.VIOLATION, f"STATUS cannot be read: {error}", RejectCode.PROTOCOL_VIOLATION)
            return
        except MarketAway as error:
            logger.debug("%s: the market could not be asked: %s", self._name(), error)
            return
        except Exception:
            # An outage of the database must not end every session; the next check is soon.
            logger.exception("%s: the market could not be asked", self._name())
            return
        self._roster.set_replicas(self._number, usable_replicas(self._held, standing.claims, hello.build))
        if status is not None:
            self._roster.broadcast(self._number, status)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _forget(self) -> None:
        if self._number:
            self._roster.leave_worker(self._number)
            self._roster.leave_backbone(self._number)

    def _name(self) -> str:
        role = "connection" if self._role is None else self._role.name.lower()
        node = "" if self._presence is None else self._presence.node_id
        return f"{role} {self._number} {node}".strip()
