"""The stages that an operator named, by address: who answers now, and rings over those."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from inference.llama import ContextSettings
from inference.ring.errors import RingError, RingIncomplete
from inference.ring.line import DEFAULT_STEP_SECONDS, TcpLine, describe
from inference.ring.route import choose_route
from inference.ring.steps import StageDescription

logger = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
RETRY_SECONDS = 0.25


class StageDirectory:
    """Opens rings (`open_line` of a `RingContext`); between `start` and `stop` it also knows whether there is one.

    fingerprint, layers: of the model that the stages must hold; step_seconds: longest wait for an answer.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        secret: bytes,
        *,
        fingerprint: str,
        layers: int,
        step_seconds: float = DEFAULT_STEP_SECONDS,
    ) -> None:
        self.addresses = tuple(addresses)
        self._secret = secret
        self._fingerprint, self._layers = fingerprint, layers
        self._step_seconds = step_seconds
        self._known: dict[str, StageDescription] = {}
        self._rings_of: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._reasons: dict[str, str] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stages", daemon=True)

    def start(self) -> None:
        """Looks once, then every LOOK_SECONDS in a thread; nothing where no stage is named."""
        if self.addresses:
            self.look()
            self._thread.start()

    def stop(self) -> None:
        """Also ends the waiting of those who want a ring."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def known(self) -> dict[str, StageDescription]:
        """The stages that answered last time, by address."""
        return dict(self._known)

    def has_ring(self) -> bool:
        """Whether the stages that answered last time hold the whole model."""
        try:
            self._route()
        except RingIncomplete:
            return False
        return True

    def look(self) -> None:
        """Asks every address what it holds, all at once."""
        if not self.addresses:
            return
        with ThreadPoolExecutor(len(self.addresses)) as pool:
            found = dict(zip(self.addresses, pool.map(self._describe, self.addresses), strict=True))
        self._known = {address: stage for address, stage in found.items() if stage is not None}

    def open_line(self, settings: ContextSettings, deadline: float) -> TcpLine:
        """A ring over stages that answer now; looks again until `deadline` (time.monotonic). Raises RingError."""
        while True:
            self.look()
            try:
                return self._open(settings)
            except RingError as error:
                if time.monotonic() >= deadline or self._stopping.wait(RETRY_SECONDS):
                    raise
                logger.debug("no ring yet: %s", error)

    def _open(self, settings: ContextSettings) -> TcpLine:
        with self._lock:
            route = self._route()
            self._rings_of.update(route)
        try:
            line = TcpLine(route, self._secret, settings, self._step_seconds, on_close=self._closed)
        except RingError:
            self._closed(route)
            raise
        logger.info("a ring over %s", ", ".join(route))
        return line

    def _closed(self, route: Sequence[str]) -> None:
        with self._lock:
            self._rings_of.subtract(route)

    def _route(self) -> tuple[str, ...]:
        return choose_route(self._known, self._fingerprint, self._layers, self._rings_of)

    def _describe(self, address: str) -> StageDescription | None:
        try:
            stage = describe(address, self._secret)
        except RingError as error:
            if self._reasons.get(address) != str(error):  # told once, not at every look
                logger.warning("stage %s: %s", address, error)
                self._reasons[address] = str(error)
            return None
        self._reasons.pop(address, None)
        return stage

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            self.look()
