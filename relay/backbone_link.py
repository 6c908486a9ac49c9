"""The backbone's end of all its relays: requests out, outcomes in, the roster of workers beside them.

One thread runs one event loop with a `RelayClient` per relay; the relays may change at any time. Other threads hand
work over with `submit_many`, which never blocks and never waits for the loop; outcomes are reported in the link's
thread. It knows sessions, credit and bytes; it knows nothing of deadlines, of experts or of money.
"""

import asyncio
import itertools
import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from relay.client import RelayClient
from relay.codes import ErrorCode, LinkCode
from relay.errors import MessageError, Rejected
from relay.frames import FLAG_MORE, Frame, FrameType, Role
from relay.messages import PAIR_BYTES, Lease, cancel_frame, dispatch_frame, read_roster, row_width, step_frame
from relay.open_requests import OpenRequests, Told
from relay.records import Json, RosterChange, RosterSession, SessionRole
from relay.work import Dispatch, Failed, OnDone, OnStepDone, Outcome, StageStep, StepOutcome

logger = logging.getLogger(__name__)

STOP_SECONDS = 5.0
MAX_COUNT = 0xFFFF
_KINDS = {"dispatch": FrameType.DISPATCH, "challenge": FrameType.CHALLENGE}


class SessionKey(NamedTuple):
    """A worker's or stage's session: our number of the relay, never used for another one, and its number there."""

    relay: int
    session: int


Sessions = Mapping[SessionKey, RosterSession]


class BackboneLink:
    """Made and used from any thread; `on_done`, `on_roster` and `on_stages` are called in the link's own and must be
    quick.

    build: whose workers it sees; stages: the build whose stages it sees, empty: no stages.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        token: str,
        build: str,
        kernel_class: str,
        name: str = "",
        capabilities: Json | None = None,
        on_roster: Callable[[Sessions], None] = lambda sessions: None,
        stages: str = "",
        on_stages: Callable[[Sessions], None] = lambda sessions: None,
    ) -> None:
        self.counters: Counter[str] = Counter()
        self.rejected: Rejected | None = None
        # Workers and stages together, and each of them apart.
        self._all: Sessions = MappingProxyType({})
        self._sessions: Sessions = self._all
        self._stages: Sessions = self._all
        self._hello = {
            "token": token,
            "build": build,
            "kernel_class": kernel_class,
            "name": name,
            "capabilities": capabilities or {},
            **({"stages": stages} if stages else {}),
        }
        self._on_roster, self._on_stages = on_roster, on_stages
        self._ids = itertools.count(1)
        self._open: OpenRequests[SessionKey] = OpenRequests()
        self._lock = threading.Lock()
        self._inbox: deque[Callable[[], None]] = deque()
        self._is_woken = False
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self._relay_numbers = itertools.count()
        self._clients: dict[int, RelayClient] = {}
        self._client_tasks: dict[int, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._set_relays(tuple(urls))
        self._thread = threading.Thread(target=self._run, name="relay-link", daemon=True)

    def _client(self, relay: int, url: str) -> RelayClient:
        return RelayClient(
            url,
            Role.BACKBONE,
            lambda: self._hello,
            partial(self._on_frame, relay),
            on_welcome=lambda welcome: logger.info("%s: connected as stream %d", url, welcome.stream),
            on_closed=partial(self._on_closed, relay),
            whole_bodies=False,
        )

    # --- any thread ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Hangs up and waits for the thread; what is pending fails with `stopped`."""
        if self._thread.ident is None:
            self._close()
            return
        self._call(self._stop_clients)
        self._thread.join(STOP_SECONDS)

    @property
    def sessions(self) -> Sessions:
        """An immutable snapshot of the workers that take work, newest state."""
        return self._sessions

    @property
    def stage_sessions(self) -> Sessions:
        """The same of stages."""
        return self._stages

    @property
    def relays_connected(self) -> list[bool]:
        """For each relay, whether it has welcomed us and is still there."""
        return [client.welcome is not None for client in self._clients.copy().values()]

    @property
    def relay_urls(self) -> tuple[str, ...]:
        """The relays that are connected, or tried."""
        return tuple(client.url for client in self._clients.copy().values())

    def set_relays(self, urls: Sequence[str]) -> None:
        """From now on these are the relays: others are hung up, and what was asked through them fails."""
        self._call(partial(self._set_relays, tuple(dict.fromkeys(urls))))

    def submit(self, dispatch: Dispatch, on_done: OnDone) -> int:
        """One request, see `submit_many`."""
        return self.submit_many([(dispatch, on_done)])[0]

    def submit_many(self, dispatches: Sequence[tuple[Dispatch, OnDone]]) -> list[int]:
        """Queues requests and returns their ids at once; each `on_done` is called once unless cancelled first.

        Arrays of a Dispatch must not change until its outcome is there. Fails a request at once, with a code, when
        its session has left (`session_left`), its worker's credit is used up (`no_credit`), the relay is lost
        (`relay_lost`) or its arrays do not fit the wire (`bad_body`).
        """
        requests = [next(self._ids) for _ in dispatches]
        self._call(partial(self._submit_all, requests, dispatches))
        return requests

    def submit_step(self, step: StageStep, on_done: OnStepDone) -> int:
        """One message for a stage, as `submit_many`. Messages to one stage arrive in the order of these calls. A
        cancelled step may have been computed all the same."""
        request = next(self._ids)
        self._call(partial(self._submit_step, request, step, on_done))
        return request

    def cancel(self, requests: Sequence[int]) -> None:
        """Forgets requests: unless it was called already, their `on_done` is not called any more."""
        if requests:
            self._call(partial(self._cancel_all, tuple(requests)))

    def _call(self, work: Callable[[], None]) -> None:
        """Runs `work` in the link's thread, after what was handed over before it; a burst costs one wake-up.

        Once the link has stopped, `work` runs in the caller's thread: there is no other any more.
        """
        with self._lock:
            is_closed = self._is_closed
            if not is_closed:
                self._inbox.append(work)
                if self._loop is not None and not self._is_woken:
                    self._is_woken = True
                    self._loop.call_soon_threadsafe(self._work)
        if is_closed:
            work()

    # --- the link's thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        with self._lock:
            self._loop = asyncio.get_running_loop()
        self._run_clients()
        self._work()
        try:
            await self._stopping.wait()
            await asyncio.gather(*self._client_tasks.values())
        finally:
            self._close()

    def _close(self) -> None:
        """From here on `_call` runs everything in the caller's thread, and every request fails."""
        with self._lock:
            self._is_closed = True
        self._work()
        self._all = self._sessions = self._stages = MappingProxyType({})
        self._forget(None, self._open.keys(), Failed(LinkCode.STOPPED, "the link to the relay was stopped"))

    def _set_relays(self, urls: tuple[str, ...]) -> None:
        for relay, client in list(self._clients.items()):
            if client.url not in urls:
                self._drop_relay(relay)
        known = set(self.relay_urls)
        for url in urls:
            if url not in known:
                relay = next(self._relay_numbers)
                self._clients[relay] = self._client(relay, url)
        if self._loop is not None:
            self._run_clients()

    def _run_clients(self) -> None:
        for relay, client in self._clients.items():
            if relay not in self._client_tasks:
                self._client_tasks[relay] = asyncio.create_task(self._keep_connected(client))

    def _drop_relay(self, relay: int) -> None:
        client = self._clients.pop(relay)
        client.stop()
        self._lose(relay, client, "the server no longer names this relay")
        task = self._client_tasks.pop(relay, None)
        if task is not None:
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def _keep_connected(self, client: RelayClient) -> None:
        try:
            await client.run()
        except Rejected as error:
            self.rejected = error
            logger.error("%s refused this backbone for good: %s (%s)", client.url, error, error.code)

    def _stop_clients(self) -> None:
        for client in self._clients.values():
            client.stop()
        self._stopping.set()

    def _work(self) -> None:
        with self._lock:
            works, self._inbox = self._inbox, deque()
            self._is_woken = False
        for work in works:
            work()

    # --- requests -----------------------------------------------------------------------------------------------------

    def _submit_all(self, requests: list[int], dispatches: Sequence[tuple[Dispatch, OnDone]]) -> None:
        for request, (dispatch, on_done) in zip(requests, dispatches, strict=True):
            self.counters["submitted"] += 1
            failed = self._send(request, dispatch, on_done)
            if failed is not None:
                self._report(on_done, failed)

    def _send(self, request: int, dispatch: Dispatch, on_done: OnDone) -> Failed | None:
        """Sends one request and remembers it, or says why not."""
        key = dispatch.session
        if not isinstance(key, SessionKey) or key not in self._sessions:
            return Failed(LinkCode.SESSION_LEFT, "this worker is not connected")
        rows, pairs = dispatch.rows, dispatch.pairs
        if not (0 < rows.shape[0] <= MAX_COUNT and 0 < pairs.shape[0] <= MAX_COUNT):
            return Failed(ErrorCode.BAD_BODY, f"{rows.shape[0]} rows and {pairs.shape[0]} pairs do not fit one request")
        try:
            n_embd = row_width(dispatch.row_dtype, rows.shape[1] * rows.itemsize)
        except MessageError as error:
            return Failed(error.code, str(error))
        frame = dispatch_frame(
            layer=dispatch.layer,
            session=key.session,
            request=request,
            lease=Lease(dispatch.fence, dispatch.claim_id),
            pairs=pairs,
            rows=rows,
            row_dtype=dispatch.row_dtype,
            kind=_KINDS[dispatch.kind],
            result_dtype=dispatch.result_dtype,
            weights=dispatch.weights,
        )
        if not self._clients[key.relay].try_send(frame):
            return Failed(LinkCode.NO_CREDIT, "this worker has not yet taken what was sent before")
        self.counters["sent_bytes"] += len(frame.body)
        answer_bytes = self._open.add(
            request, key, pairs.shape[0], n_embd, on_done, rows=rows.shape[0], result_dtype=dispatch.result_dtype
        )
        self._clients[key.relay].expect(key.session, answer_bytes)
        return None

    def _submit_step(self, request: int, step: StageStep, on_done: OnStepDone) -> None:
        self.counters["submitted"] += 1
        failed = self._send_step(request, step, on_done)
        if failed is not None:
            self._report(on_done, failed)

    def _send_step(self, request: int, step: StageStep, on_done: OnStepDone) -> Failed | None:
        key = step.session
        if not isinstance(key, SessionKey) or key not in self._stages:
            return Failed(LinkCode.SESSION_LEFT, "this stage is not connected")
        if len(step.message) < PAIR_BYTES:  # as short as no request may be
            return Failed(ErrorCode.BAD_BODY, f"{len(step.message)} bytes are no message of a ring")
        lease = Lease(step.fence, step.claim_id)
        rows = min(max(1, step.rows), MAX_COUNT)
        frame = step_frame(layer=0, session=key.session, request=request, lease=lease, rows=rows, step=step.message)
        if not self._clients[key.relay].try_send(frame):
            return Failed(LinkCode.NO_CREDIT, "this stage has not yet taken what was sent before")
        self.counters["sent_bytes"] += len(frame.body)
        self._clients[key.relay].expect(key.session, self._open.add_step(request, key, step.answer_bytes, on_done))
        return None

    def _cancel_all(self, requests: tuple[int, ...]) -> None:
        for request in requests:
            key = self._open.cancel(request)
            if key is not None:
                self.counters["cancelled"] += 1
                self._clients[key.relay].send(cancel_frame(request, session=key.session))

    def _report(self, on_done: Told, outcome: Outcome | StepOutcome) -> None:
        self.counters[f"failed_{outcome.code}" if isinstance(outcome, Failed) else "results"] += 1
        try:
            on_done(outcome)
        except Exception:
            logger.exception("a callback failed; the link goes on")

    # --- frames -------------------------------------------------------------------------------------------------------

    def _on_frame(self, relay: int, frame: Frame) -> None:
        if relay not in self._clients:
            return  # dropped a moment ago
        match frame.type:
            case FrameType.RESULT | FrameType.ERROR:
                self._on_answer(SessionKey(relay, frame.session), frame)
            case FrameType.ROSTER:
                self._on_change(relay, read_roster(frame))
            case FrameType.DRAIN:
                key = SessionKey(relay, frame.session)
                self._set_sessions({other: session for other, session in self._all.items() if other != key})
            case _:
                self.counters[f"received_{frame.type.name.lower()}"] += 1

    def _on_answer(self, key: SessionKey, frame: Frame) -> None:
        answer = self._open.answer(key, frame)
        self.counters["received_bytes"] += len(frame.body)
        if not answer.is_asked:
            self.counters["unasked"] += 1
        else:
            self._clients[key.relay].consumed(frame)
        if answer.on_done is not None and answer.outcome is not None:
            self._report(answer.on_done, answer.outcome)
        elif answer.is_asked and answer.outcome is None and not frame.flags & FLAG_MORE:
            self.counters["late"] += 1

    def _on_change(self, relay: int, change: RosterChange) -> None:
        gone = [SessionKey(relay, session) for session in change.left]
        if change.full:
            gone += [key for key in self._all if key.relay == relay]
        sessions = dict(self._all)
        for key in gone:
            sessions.pop(key, None)
        sessions |= {SessionKey(relay, session.session): session for session in change.joined}
        self._set_sessions(sessions)
        self._forget(self._clients[relay], gone, Failed(LinkCode.SESSION_LEFT, "this session left"))

    def _on_closed(self, relay: int, reason: str) -> None:
        client = self._clients.get(relay)
        if client is not None:
            self._lose(relay, client, reason)

    def _lose(self, relay: int, client: RelayClient, reason: str) -> None:
        """Every session of a relay is out of reach."""
        keys = {key for key in (*self._all, *self._open.keys()) if key.relay == relay}
        self._set_sessions({key: session for key, session in self._all.items() if key not in keys})
        self._forget(client, keys, Failed(LinkCode.RELAY_LOST, reason))

    def _forget(self, client: RelayClient | None, keys: Iterable[SessionKey], failed: Failed) -> None:
        """Sessions are gone: their requests fail now, not at a deadline."""
        for key in keys:
            if key in self._all:
                continue
            if client is not None:
                client.forget_peer(key.session)
            for on_done in self._open.forget(key):
                self._report(on_done, failed)

    def _set_sessions(self, sessions: dict[SessionKey, RosterSession]) -> None:
        before = self._stages
        self._all = MappingProxyType(sessions)
        self._sessions = _of_role("worker", sessions)
        self._stages = _of_role("stage", sessions)
        try:
            self._on_roster(self._sessions)
            if before != self._stages:
                self._on_stages(self._stages)
        except Exception:
            logger.exception("the roster's callback failed; the link goes on")


def _of_role(role: SessionRole, sessions: Mapping[SessionKey, RosterSession]) -> Sessions:
    return MappingProxyType({key: session for key, session in sessions.items() if session.role == role})
