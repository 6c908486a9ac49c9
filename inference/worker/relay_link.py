"""The worker's connection to the relay: one client while there is something to serve, and the service behind it.

Runs in the event loop. The relay's words about this node (a refusal) are kept until the lifecycle asks for them.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

from inference.worker.errors import RelayRefused, UnknownToken, WorkerError
from inference.worker.holdings import Holding, Holdings
from inference.worker.row_budget import RowBudget
from inference.worker.serve import Answers, ExpertService, OnGone
from relay.addresses import RelayAddresses
from relay.client import RelayClient
from relay.codes import RejectCode
from relay.errors import Rejected
from relay.frames import Frame, FrameType, Role
from relay.messages import status_frame
from relay.records import Welcome

CLOSE_SECONDS = 2.0
FIND_SECONDS = 5.0
FATAL_REJECTS = frozenset(
    {
        RejectCode.BAD_PREAMBLE,
        RejectCode.BAD_HELLO,
        RejectCode.WRONG_ROLE,
        RejectCode.PROTOCOL_VERSION,
        RejectCode.REPLACED,
    }
)

logger = logging.getLogger(__name__)


def relay_url(server: str) -> str:
    """The relay's address at a server: http becomes ws, https becomes wss."""
    return f"ws{server.removeprefix('http')}/relay/"


class RelayLink:
    """Connected when something is held and a token is known. Made, used and closed in one event loop."""

    def __init__(
        self,
        server: str,
        name: str,
        kernel_class: str,
        holdings: Holdings,
        *,
        find_relays: Callable[[], Awaitable[tuple[str, ...]]] | None = None,
        tls: ssl.SSLContext | None = None,
        rows_per_second: float | None = None,
        role: Role = Role.WORKER,
        answers: Answers | None = None,
        on_gone: OnGone | None = None,
    ) -> None:
        """find_relays: asks the server for its relays; raises WorkerError. tls: None: the system's authorities.
        rows_per_second: None: as many as it can. role, answers, on_gone: of a stage, see
        `ExpertService`."""
        self._addresses = RelayAddresses(relay_url(server))
        self._find_relays = find_relays
        self._tls = tls
        self._name = name
        self._kernel_class = kernel_class
        self._holdings = holdings
        budget = None if rows_per_second is None else RowBudget(rows_per_second)
        self._service = ExpertService(holdings, self, budget=budget, answers=answers, on_gone=on_gone)
        self._role = role
        self._client: RelayClient | None = None
        self._task: asyncio.Task[None] | None = None
        self._served: tuple[str, str | None] = ("", None)
        self._trouble: WorkerError | None = None
        self._has_spread = False

    # --- for the lifecycle --------------------------------------------------------------------------------------------
    def check(self) -> None:
        """Raises, once, why the relay ended the session for good."""
        trouble, self._trouble = self._trouble, None
        if trouble is not None:
            raise trouble
        if self._task is not None and self._task.done():
            self._task.result()  # the client ends by itself for a refusal only, or by a bug

    def update(self, token: str) -> None:
        """Holdings changed, or may have: connect, tell the relay, or hang up when there is nothing to serve."""
        wanted = (token, self._holdings.build)
        if wanted != self._served:
            self._hang_up()
        if self._client is None and self._holdings.build is not None:
            self._served = wanted
            self._dial()
        else:
            self._report()

    def drop(self, holding: Holding) -> None:
        """Stop serving a slice; its kernel is closed when the queue is through with it."""
        self._service.drop(holding)

    async def drain(self, timeout_seconds: float) -> None:
        """Take no new work, finish what is queued."""
        if self._client is not None:
            self._client.send(Frame(FrameType.DRAIN))
        if not await self._service.finish(timeout_seconds):
            logger.warning("%d requests were not finished in time", self._service.waiting)

    async def close(self) -> None:
        """Hang up, after what is queued was sent, and end the computing thread."""
        task = self._task
        self._hang_up()
        if task is not None:
            await asyncio.wait([task], timeout=CLOSE_SECONDS)
        self._service.close()
        counters = self._service.counters
        logger.info("answered %d requests, %d rows; refused %d", counters.answered, counters.rows, counters.refused)

    # --- for the service ----------------------------------------------------------------------------------------------
    def send(self, frame: Frame) -> None:
        if self._client is not None:
            self._client.send(frame)

    def consumed(self, frame: Frame) -> None:
        if self._client is not None:
            self._client.consumed(frame)

    # --- inside -------------------------------------------------------------------------------------------------------
    def _dial(self) -> None:
        client = RelayClient(
            self._addresses,
            self._role,
            self._hello,
            self._service.receive,
            on_welcome=self._on_welcome,
            on_closed=lambda reason: self._service.abandon_all(),
            before_attempt=self._look_for_relays,
            tls=self._tls,
        )
        self._client = client
        self._task = asyncio.create_task(self._stay_connected(client))

    async def _look_for_relays(self) -> None:
        """The server may have others than before. The first time one of them is taken at random: all get their share.

        While the server itself does not answer, the relays that are known have to do.
        """
        if self._find_relays is None:
            return
        try:
            async with asyncio.timeout(FIND_SECONDS):
                self._addresses.learn(await self._find_relays())
        except (WorkerError, TimeoutError) as error:
            logger.debug("the server does not tell its relays: %s", error)
            return
        if not self._has_spread:
            self._has_spread = True
            self._addresses.spread()

    async def _stay_connected(self, client: RelayClient) -> None:
        try:
            await client.run()
        except Rejected as error:
            self._trouble = refusal_from(error)
            if self._client is client:
                self._hang_up()

    def _hang_up(self) -> None:
        if self._client is not None:
            self._client.stop()
            self._service.abandon_all()
        self._client, self._task, self._served = None, None, ("", None)

    def _hello(self) -> dict[str, Any]:
        token, build = self._served
        return {
            "token": token,
            "build": build or "",
            "kernel_class": self._kernel_class,
            "name": self._name,
            "capabilities": {} if self._role is Role.STAGE else {"results": ["sums"], "rows": ["q8_0"]},
            "replicas": self._holdings.replicas(),
        }

    def _on_welcome(self, welcome: Welcome) -> None:
        logger.info("connected to the relay %s, session %d", self._addresses.current, welcome.session)
        # Holdings may have changed since HELLO was written.
        self._report()

    def _report(self) -> None:
        if self._client is not None:
            self._client.send(status_frame({"replicas": self._holdings.replicas()}))


def refusal_from(error: Rejected) -> WorkerError:
    """What a REJECT means for the worker's life."""
    if error.code == RejectCode.BAD_TOKEN:
        return UnknownToken(401, error.code, str(error))
    if error.code == RejectCode.REPLACED:
        return RelayRefused(error.code, "another worker connected as the same node; this one ends", fatal=True)
    return RelayRefused(error.code, f"the relay refused this worker: {error}", fatal=error.code in FATAL_REJECTS)
