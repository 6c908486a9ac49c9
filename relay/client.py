"""The asyncio client of the relay, for workers and backbones alike: one connection, kept up until told to stop.

Everything happens in the event loop that runs `run`; `send` and `consumed` must be called in its thread.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from time import monotonic
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from relay.addresses import RelayAddresses, is_loopback
from relay.backoff import Backoff
from relay.client_session import ClientSession
from relay.codes import RETRY_REJECTS, CloseCode
from relay.errors import Rejected, RelayError, RelayLost
from relay.frames import MESSAGE_BYTES, Frame, Role
from relay.messages import Reassembler
from relay.records import Welcome

logger = logging.getLogger(__name__)

OPEN_SECONDS = 10.0
CLOSE_SECONDS = 1.0
# One ping more than the relay allows us: it closes first, with a reason, wherever that still arrives.
MISSED_PINGS = 4
# A connection that lasted this long was a good one: the next attempt waits as after the first failure.
GOOD_SECONDS = 10.0
GRANT_SECONDS = 0.05
MOVE_SECONDS = 1.0
MAX_BODY_BYTES = 64 * 1024 * 1024


class RelayClient:
    """Connects, says HELLO, delivers frames, answers pings, grants and respects credit, reconnects.

    url: one address for ever, or addresses to fall over between. hello: the fields of HELLO, asked for at every
    attempt. on_frame: DISPATCH, CHALLENGE, CANCEL for a worker; STEP, CANCEL for a stage; ROSTER, RESULT, ERROR,
    STATUS, DRAIN for a backbone; it must be quick, and call `consumed` for counted frames when their
    bytes are no longer held. whole_bodies: join chunks before on_frame. on_welcome and on_closed come in turn;
    on_closed gets a sentence for a person. before_attempt is awaited before every attempt: the place to ask anew where
    the relays are. tls: for wss://; None: the system's authorities. HTTP_PROXY and HTTPS_PROXY are honoured.
    """

    def __init__(
        self,
        url: str | RelayAddresses,
        role: Role,
        hello: Callable[[], Mapping[str, object]],
        on_frame: Callable[[Frame], None],
        *,
        before_attempt: Callable[[], Awaitable[None]] | None = None,
        on_welcome: Callable[[Welcome], None] = lambda welcome: None,
        on_closed: Callable[[str], None] = lambda reason: None,
        whole_bodies: bool = True,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Raises ValueError for an address that is no ws:// or wss:// URL."""
        self.addresses = RelayAddresses(url) if isinstance(url, str) else url
        self._stays = isinstance(url, str)
        self._before_attempt = before_attempt
        self._role = role
        self._hello = hello
        self._on_frame = on_frame
        self._on_welcome = on_welcome
        self._on_closed = on_closed
        self._whole_bodies = whole_bodies
        self._tls = tls
        self._session: ClientSession | None = None
        self._heard = 0.0
        self._queued = asyncio.Event()
        self._stopped = asyncio.Event()
        self._grant_timer: asyncio.TimerHandle | None = None

    # --- for the owner ------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """Where it is connected, or will connect next."""
        return self.addresses.current

    @property
    def welcome(self) -> Welcome | None:
        """What the relay said when the present session opened; None while there is none."""
        return None if self._session is None else self._session.welcome

    def send(self, frame: Frame) -> bool:
        """Queues a frame, see ClientSession.send; False: dropped, nobody would take it."""
        return self._session is not None and self._session.send(frame)

    def try_send(self, frame: Frame) -> bool:
        """Queues all of a frame within credit, or nothing; False: no session, or no credit."""
        return self._session is not None and self._session.try_send(frame)

    def expect(self, number: int, size: int) -> None:
        """What was just sent to this peer has an answer of up to `size` bytes, see ClientSession.expect."""
        if self._session is not None:
            self._session.expect(number, size)

    def consumed(self, frame: Frame) -> None:
        """The sender of this frame may send as many bytes more."""
        if self._session is None:
            return
        self._session.consumed(frame)
        if self._grant_timer is None:
            self._grant_timer = asyncio.get_running_loop().call_later(GRANT_SECONDS, self._grant)

    def forget_peer(self, number: int) -> None:
        """A session or stream is gone; what waited for it is dropped."""
        if self._session is not None:
            self._session.forget_peer(number)

    def stop(self) -> None:
        """Ends `run`, now or at its next attempt. Frames that are queued are sent first."""
        self._stopped.set()

    async def run(self) -> None:
        """Stays connected until `stop`. Raises Rejected when another attempt would be refused as well."""
        backoff = Backoff(self._role)
        while not self._stopped.is_set():
            if self._before_attempt is not None:
                await self._before_attempt()
            started = monotonic()
            url = self.url
            reason = await self._connect_once()
            if monotonic() - started >= GOOD_SECONDS:
                backoff.reset()
            if not self._stays:
                self.addresses.failed()
            delay = backoff.next_seconds()
            if self._stopped.is_set():
                return
            logger.info("%s: %s; connecting again in %.1f s", url, reason, delay)
            try:
                async with asyncio.timeout(delay):
                    await self._stopped.wait()
            except TimeoutError:
                continue

    # --- one connection -----------------------------------------------------------------------------------------------

    async def _connect_once(self) -> str:
        """One connection from handshake to end; returns why it ended. Raises Rejected for good."""
        reason = "stopped"
        try:
            socket = await self._dial()
            if socket is not None:
                async with socket:
                    await self._serve(socket)
        except Rejected as error:
            reason = f"{error.code}: {error}"
            if error.code not in RETRY_REJECTS:
                raise
        except ConnectionClosed as error:
            reason = _why_closed(error)
        except (OSError, WebSocketException, RelayError) as error:
            reason = str(error) or type(error).__name__
        finally:
            was_open = self.welcome is not None
            self._session = None
            if was_open:
                self._on_closed(reason)
        return reason

    async def _dial(self) -> ClientConnection | None:
        """The handshake; None when `stop` came first."""
        dialling = asyncio.ensure_future(
            connect(
                self.url,
                compression=None,
                max_size=MESSAGE_BYTES,
                ping_interval=None,
                open_timeout=OPEN_SECONDS,
                close_timeout=CLOSE_SECONDS,
                # Never through a proxy to this machine itself, whatever the environment says.
                proxy=None if is_loopback(self.url) else True,
                ssl=(self._tls or True) if self.url.startswith("wss://") else None,
            )
        )
        stopping = asyncio.create_task(self._stopped.wait())
        try:
            await asyncio.wait([dialling, stopping], return_when=asyncio.FIRST_COMPLETED)
            return await dialling if dialling.done() else None
        finally:
            stopping.cancel()
            dialling.cancel()

    async def _serve(self, socket: ClientConnection) -> None:
        """Runs the tasks of a connection until the first of them ends; raises what it raised."""
        reassembler = Reassembler(MAX_BODY_BYTES, 2 * MAX_BODY_BYTES) if self._whole_bodies else None
        session = ClientSession(self._role, self._hello(), self._on_frame, reassembler, self._queued.set)
        self._session = session
        self._heard = monotonic()
        self._queued.set()
        works: list[Coroutine[Any, Any, None]] = [
            self._read(socket, session),
            self._write(socket, session),
            self._watch(session),
            self._wait_for_stop(socket, session),
        ]
        tasks = [asyncio.create_task(work) for work in works]
        try:
            # Each of them ends by an exception only; the writer may end early, when the reader still has to read why.
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            task.result()

    async def _read(self, socket: ClientConnection, session: ClientSession) -> None:
        while True:
            message = await socket.recv(decode=False)
            self._heard = monotonic()
            was_open = session.is_open
            try:
                session.receive(message)
            except Rejected:
                raise
            except RelayError:
                await socket.close(CloseCode.VIOLATION)
                raise
            if session.welcome is not None and not was_open:
                if not self._stays:
                    self.addresses.answered()
                    self.addresses.learn(session.welcome.relays)
                self._on_welcome(session.welcome)
            if session.is_moving:
                await asyncio.sleep(MOVE_SECONDS)
                raise RelayLost("the relay is closing")

    async def _write(self, socket: ClientConnection, session: ClientSession) -> None:
        try:
            while True:
                await self._queued.wait()
                self._queued.clear()
                while (message := session.take()) is not None:
                    await socket.send(message)
        except ConnectionClosed:
            return

    async def _watch(self, session: ClientSession) -> None:
        """A relay that answers nothing is gone, whatever TCP believes."""
        while True:
            ping_seconds = OPEN_SECONDS if session.welcome is None else session.welcome.ping_seconds
            silence = monotonic() - self._heard
            if silence > MISSED_PINGS * ping_seconds:
                raise RelayLost(f"the relay was silent for {silence:.0f} s")
            await asyncio.sleep(ping_seconds / 2)

    async def _wait_for_stop(self, socket: ClientConnection, session: ClientSession) -> None:
        await self._stopped.wait()
        while (message := session.take()) is not None:
            await socket.send(message)
        raise RelayLost("stopped")

    def _grant(self) -> None:
        self._grant_timer = None
        if self._session is not None:
            self._session.grant_due()


def _why_closed(error: ConnectionClosed) -> str:
    if error.rcvd is None:
        return "the connection broke"
    return f"the relay closed the connection ({error.rcvd.code} {error.rcvd.reason})"
