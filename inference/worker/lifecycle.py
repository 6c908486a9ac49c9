"""The worker as a whole: enrol, claim, download, serve, give back. One `step` does whatever is due; `run` repeats it.
Stages live the same life (`inference.stage.lifecycle`).

Expected trouble (server down, no work, disk full) is one line for the owner and a later try; only what trying again
cannot help ends the program.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from inference.errors import InferenceError
from inference.worker.claim_plan import is_needed_elsewhere, plan_claims
from inference.worker.download import Download, Progress, download_slice
from inference.worker.errors import (
    BudgetTooSmall,
    DownloadFailed,
    NoSpace,
    NotAccepted,
    ServerRefused,
    StateUnusable,
    UnknownToken,
    WorkerError,
)
from inference.worker.holdings import Computes, Holding, Holdings
from inference.worker.identity import Identity, forget_identity, load_identity, save_identity
from inference.worker.market_client import Claim, Demand, MarketClient
from inference.worker.options import Options
from inference.worker.pacing import KeepAlive, unless
from inference.worker.slice_store import SliceStore

HEARTBEATS_PER_LEASE = 4
MOST_PAUSE_SECONDS = 60.0
RELEASE_SECONDS = 3.0
STAY_SHARE = 0.5
FINISH_SECONDS = 3.0

logger = logging.getLogger(__name__)


def no_progress(claim: Claim) -> AbstractContextManager[None]:
    """Nobody watches the downloads."""
    return contextlib.nullcontext()


class Opener(Protocol):
    """How slices are opened here: `KernelChoice`, or what opens stages. types: the ggml types that it computes, None:
    all."""

    @property
    def kernel_class(self) -> str: ...
    @property
    def types(self) -> frozenset[str] | None: ...
    @property
    def open(self) -> Callable[[Path], Computes]: ...


class Link(Protocol):
    """The connection to the relay, as far as the lifecycle cares (`relay_link.py`)."""

    def check(self) -> None:
        """Raises WorkerError when the relay ended the session for good."""
        ...

    def update(self, token: str) -> None:
        """Connect when there is something to serve, tell the relay what is held, or hang up."""
        ...

    def drop(self, holding: Holding) -> None:
        """Stop serving a slice."""
        ...

    async def drain(self, timeout_seconds: float) -> None:
        """Take no new work, finish what is queued."""
        ...

    async def close(self) -> None: ...


class Worker:
    """One node at one server. `folder`: its state, locked by the caller."""

    def __init__(
        self,
        options: Options,
        folder: Path,
        kernel: Opener,
        market: MarketClient,
        holdings: Holdings,
        link: Link,
        progress: Callable[[Claim], AbstractContextManager[Progress | None]] = no_progress,
    ) -> None:
        self._options = options
        self._folder = folder
        self._kernel = kernel
        self._market = market
        self._holdings = holdings
        self._link = link
        self._progress = progress
        self._store = SliceStore(folder / "slices")
        self._budget_bytes = options.budget_bytes
        self._claims: tuple[Claim, ...] = ()
        self._failures = 0
        self._said = ""
        identity = load_identity(folder)
        if identity and options.token not in (None, identity.token):
            raise StateUnusable(
                f"{folder} already belongs to node {identity.node_id}: give this one a folder of its own with --state"
            )
        self._market.token = identity.token if identity else None

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop`; then finish, give the claims back and return. Raises WorkerError when it cannot go on."""
        try:
            while not stop.is_set():
                pause_seconds = await unless(stop, self.round())
                if pause_seconds is not None:
                    await unless(stop, asyncio.sleep(pause_seconds))
        finally:
            await self._leave()

    async def round(self) -> float:
        """One step, with trouble turned into words; returns the seconds until the next."""
        try:
            pause_seconds = await self.step()
            self._failures = 0
            return pause_seconds
        except UnknownToken as error:
            self._forget(error)
            return 0.0 if self._failures <= 1 else self._backoff()
        except WorkerError as error:
            if error.fatal:
                raise
            self._failures += 1
            pause_seconds = self._backoff()
            logger.warning("%s; trying again in %.0f seconds", error, pause_seconds)
            return pause_seconds

    def _backoff(self) -> float:
        return min(MOST_PAUSE_SECONDS, 2.0 ** min(self._failures, 10)) * random.uniform(0.5, 1.0)

    async def step(self) -> float:
        """Whatever is due now; returns the seconds until the next step. Raises WorkerError."""
        self._link.check()
        if self._market.token is None:
            await (self._register() if self._options.token is None else self._adopt(self._options.token))
        heartbeat = await self._market.heartbeat()
        self._note_claims(heartbeat.claims)
        pause_seconds = heartbeat.lease_seconds / HEARTBEATS_PER_LEASE * random.uniform(0.8, 1.0)
        budget_bytes = await self._budget()
        if budget_bytes is None:
            return pause_seconds
        await self._move(budget_bytes)
        plan = plan_claims([held.claim for held in self._holdings], self._claims, budget_bytes)
        self._drop(plan.drop)
        if plan.drop:
            self._link.update(self._market.token or "")
        await self._give_back(plan.give_back)
        fetch = plan.fetch
        if not fetch and plan.free_bytes > 0 and self._wants_more:
            fetch, pause_seconds = await self._claim_more(plan.free_bytes, pause_seconds)
        self._store.prune([held.claim for held in self._holdings] + list(fetch))
        for claim in fetch:
            await self._acquire(claim, pause_seconds)
        self._link.update(self._market.token or "")
        self._say_what_is_served()
        return pause_seconds

    @property
    def _wants_more(self) -> bool:
        """A stage is one place in a ring: it holds one run of units, whatever memory is left."""
        return self._market.role == "worker" or not self._claims

    # --- enrolment ----------------------------------------------------------------------------------------------------
    async def _register(self) -> None:
        options = self._options
        try:
            node_id, token = await self._market.register(
                options.name, self._kernel.kernel_class, options.budget_bytes, options.invite
            )
        except ServerRefused as refusal:
            if refusal.status == 429:  # too many at once: later
                raise
            raise NotAccepted(f"{self._market.server} does not register this worker: {refusal}") from refusal
        save_identity(self._folder, Identity(node_id, token))
        self._market.token = token
        logger.info("registered at %s as node %s, %r", self._market.server, node_id, options.name)

    async def _adopt(self, token: str) -> None:
        """Becomes the node that its owner registered on the server's page."""
        self._market.token = token
        try:
            node_id = await self._market.node_id()
        except UnknownToken as refusal:
            raise NotAccepted(f"{self._market.server} does not know the token of --token: {refusal}") from refusal
        except WorkerError:
            self._market.token = None
            raise
        save_identity(self._folder, Identity(node_id, token))
        logger.info("this is node %s of %s", node_id, self._market.server)

    def _forget(self, error: UnknownToken) -> None:
        """The server does not know us (any more): leave everything of the old node behind."""
        self._failures += 1
        logger.warning("the server does not know this node's token (%s); registering as a new node", error)
        forget_identity(self._folder)
        self._market.token = None
        self._drop(tuple(held.claim for held in self._holdings))
        self._link.update("")
        self._claims = ()

    async def _budget(self) -> int | None:
        """Bytes to lend; None while `--experts` is given and the server has nothing to tell the size of an expert."""
        if self._budget_bytes is None:
            demand = await self._market.demand(None, types=self._kernel.types)
            sizes = [offer.expert_bytes for offer in demand.ranges]
            sizes += [-(-claim.size_bytes // (claim.last - claim.first)) for claim in self._claims]
            if not sizes:
                self._say(f"no work because {demand.message or 'nothing is wanted'}")
                return None
            assert self._options.experts is not None
            self._budget_bytes = self._options.experts * max(sizes)
            logger.info("lending %.1f MB, memory for %d experts", self._budget_bytes / 1e6, self._options.experts)
        return self._budget_bytes

    # --- claims -------------------------------------------------------------------------------------------------------
    def _note_claims(self, claims: tuple[Claim, ...]) -> None:
        """Take over the server's list, and tell the owner when a slice was verified."""
        known = {claim for claim in self._claims if claim.live}
        for claim in claims:
            if claim.live and claim not in known and self._holdings.find(claim.claim_id):
                logger.info("%s: verified by the server, earning", claim)
        self._claims = claims

    async def _claim_more(self, free_bytes: int, pause_seconds: float) -> tuple[tuple[Claim, ...], float]:
        """Claim what is best for the free memory; returns the new claims and the pause that the server asks for."""
        build, types = self._holdings.build, self._kernel.types
        demand = await self._market.demand(free_bytes, build, types)
        pause_seconds = min(pause_seconds, demand.poll_seconds)
        if not demand.ranges:
            self._say_why_not(demand)
            return (), pause_seconds
        try:
            claims = await self._market.claim_best(free_bytes, build, types)
        except UnknownToken:
            raise
        except ServerRefused as refusal:  # somebody was first, or the operator's budget is spent
            self._say_why_not(Demand((), demand.poll_seconds, refusal.code, str(refusal)))
            return (), pause_seconds
        for claim in claims:
            logger.info(
                "claimed %s: %.1f MB, up to %.3f credits per hour",
                claim,
                claim.size_bytes / 1e6,
                claim.rate_microcredits_per_hour / 1e6,
            )
        self._claims += claims
        return claims, pause_seconds

    def _say_why_not(self, demand: Demand) -> None:
        """Nothing more to claim; worth a line only when there is no work at all. Raises BudgetTooSmall."""
        if self._claims or len(self._holdings):
            return
        if demand.reason == BudgetTooSmall.code:
            options = "--budget and --experts" if self._market.role == "worker" else "--budget"
            raise BudgetTooSmall(f"{demand.message} (see {options})")
        self._say(f"no work because {demand.message or 'nothing is wanted'}")

    def _drop(self, claims: tuple[Claim, ...]) -> None:
        for claim in claims:
            logger.info("%s: no longer claimed, dropping the slice", claim)
            holding = self._holdings.find(claim.claim_id)
            assert holding is not None
            self._link.drop(holding)

    async def _give_back(self, claims: tuple[Claim, ...]) -> None:
        for claim in claims:
            logger.info("%s: more than this machine lends, giving it back", claim)
            await self._release(claim)

    async def _release(self, claim: Claim) -> None:
        await self._market.release(claim.claim_id)
        self._claims = tuple(other for other in self._claims if other != claim)

    async def _move(self, budget_bytes: int) -> None:
        """A stage whose units others hold as well gives them back where some are held by nobody; it claims those next.
        By chance, so that not all spare ones leave together."""
        if self._market.role == "worker" or not any((claim.replicas or 0) > 1 for claim in self._claims):
            return
        demand = await self._market.demand(budget_bytes, self._holdings.build)
        if not is_needed_elsewhere(self._claims, demand) or random.random() < STAY_SHARE:
            return
        for claim in self._claims:
            logger.info("%s: others hold it as well, and some units are held by nobody; giving it back", claim)
            await self._release(claim)

    # --- slices -------------------------------------------------------------------------------------------------------
    async def _acquire(self, claim: Claim, heartbeat_seconds: float) -> None:
        """Download, open, serve, and tell the server. Raises WorkerError; a claim that cannot be held is given back."""
        try:
            async with KeepAlive(self._market, heartbeat_seconds):
                with self._progress(claim) as progress:
                    download = await download_slice(self._market, self._store, claim, progress)
            kernel = await asyncio.to_thread(self._kernel.open, download.path)
        except NoSpace:
            await self._release(claim)
            raise
        except WorkerError:
            raise
        except InferenceError as error:
            await self._release(claim)
            raise DownloadFailed(f"{claim}: the server's slice cannot be opened: {error}") from error
        _say_downloaded(claim, download)
        self._holdings.add(Holding(claim, download.sha256, kernel))
        self._link.update(self._market.token or "")
        await self._market.delivered(claim, download.sha256)
        # A second report: the relay reads the claims again when one arrives, and now finds the digest there.
        self._link.update(self._market.token or "")

    # --- words --------------------------------------------------------------------------------------------------------
    def _say_what_is_served(self) -> None:
        if len(self._holdings):
            self._say(f"serving {self._holdings}")

    def _say(self, text: str) -> None:
        """A line about the state, once per change."""
        if text != self._said:
            logger.info("%s", text)
            self._said = text

    # --- the end ------------------------------------------------------------------------------------------------------
    async def _leave(self) -> None:
        """Finish queued work, give the claims back, hang up. Raises nothing that is expected."""
        await self._link.drain(FINISH_SECONDS)
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                await self._release_all()
        except (WorkerError, TimeoutError) as error:
            logger.warning("the server did not take the claims back (%s); they will end by themselves", error)
        await self._link.close()

    async def _release_all(self) -> None:
        if self._market.token is None:
            return
        # Asked again: a claim whose answer was cut off by the stop is known to the server only.
        claims = (await self._market.heartbeat()).claims
        for claim in claims:
            await self._market.release(claim.claim_id)
        if claims:
            logger.info("gave back %s", "; ".join(map(str, claims)))


def _say_downloaded(claim: Claim, download: Download) -> None:
    here = download.size_bytes - download.received_bytes
    logger.info(
        "%s: slice of %.1f MB is here, %d bytes received%s",
        claim,
        download.size_bytes / 1e6,
        download.received_bytes,
        f", {here} bytes were here before" if here > 0 else "",
    )
