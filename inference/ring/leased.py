"""The stages that the market leased and the backbone verified: rings over those through the relay."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Collection, Sequence

from inference.llama import ContextSettings
from inference.ring.errors import RingError, RingIncomplete
from inference.ring.line import DEFAULT_STEP_SECONDS
from inference.ring.relay_line import LeasedStage, Passed, RelayLine, StepTransport, unheard
from inference.ring.route import choose_route

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.25
# A stage that failed counts as used by so many rings more: others come first, and it is tried again when none are left.
FAILURE_WEIGHT = 8


class LeasedStages:
    """Opens rings (`open_line` of a `RingContext`) over what `set_stages` said last. Methods from any thread.

    fingerprint, layers: of the model that the stages must hold; on_passed: see `RelayLine`.
    """

    def __init__(
        self,
        transport: StepTransport,
        *,
        fingerprint: str,
        layers: int,
        step_seconds: float = DEFAULT_STEP_SECONDS,
        on_passed: Passed = unheard,
    ) -> None:
        self._transport = transport
        self._fingerprint, self._layers = fingerprint, layers
        self._step_seconds, self._on_passed = step_seconds, on_passed
        self._changed = threading.Condition()
        self._stages: dict[str, LeasedStage] = {}
        self._rings_of: Counter[str] = Counter()
        self._is_stopping = False

    def set_stages(self, stages: Collection[LeasedStage]) -> None:
        with self._changed:
            self._stages = {stage.name: stage for stage in stages}
            self._changed.notify_all()

    def stop(self) -> None:
        """Ends the waiting of those who want a ring."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()

    @property
    def known(self) -> dict[str, LeasedStage]:
        with self._changed:
            return dict(self._stages)

    def has_ring(self) -> bool:
        """Whether the stages hold the whole model."""
        try:
            self._route()
        except RingIncomplete:
            return False
        return True

    def open_line(self, settings: ContextSettings, deadline: float) -> RelayLine:
        """A ring; waits for missing stages until `deadline` (time.monotonic). Raises RingError."""
        while True:
            try:
                return self._open(settings)
            except RingError as error:
                with self._changed:
                    if time.monotonic() >= deadline or self._is_stopping:
                        raise
                    self._changed.wait(RETRY_SECONDS)
                logger.debug("no ring yet: %s", error)

    def _open(self, settings: ContextSettings) -> RelayLine:
        with self._changed:
            route = self._route()
            stages = [self._stages[name] for name in route]
            self._rings_of.update(route)
        try:
            line = RelayLine(
                self._transport, stages, settings, step_seconds=self._step_seconds, on_passed=self._on_passed,
                on_close=self._closed,
            )  # fmt: skip
        except RingError:
            with self._changed:
                self._rings_of.update(dict.fromkeys(route, FAILURE_WEIGHT - 1))
            raise
        logger.info("a ring over %s", ", ".join(route))
        return line

    def _closed(self, line: RelayLine) -> None:
        with self._changed:
            self._rings_of.subtract(stage.name for stage in line.stages)

    def _route(self) -> Sequence[str]:
        with self._changed:
            descriptions = {name: stage.description for name, stage in self._stages.items()}
            return choose_route(descriptions, self._fingerprint, self._layers, self._rings_of)
