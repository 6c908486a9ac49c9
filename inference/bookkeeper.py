"""Turns the dispatcher's counts into credit windows, safely: spooled while open, sent when closed, until acknowledged.

The step is a pure sequence over a clock handed in; a thread repeats it. What a killed backbone loses is bounded by the
time between two spool writes (`SPOOL_SECONDS`).
"""

import logging
import threading
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from inference.credit_spool import CreditSpool, CreditWindow
from inference.errors import InferenceError
from inference.work_report import WorkReport, added

logger = logging.getLogger(__name__)

TICK_SECONDS = 1.0
STRAIN_SECONDS = 60.0

SendCredit = Callable[[CreditWindow], None]
SendDemand = Callable[[npt.NDArray[np.uint64], float, float], None]


class NotAcknowledged(InferenceError):
    """The market did not take a credit window now; it is kept and sent again."""

    code = "not_acknowledged"


class CreditRefused(InferenceError):
    """The market will never take (a part of) this window; it is set aside for a person to look at."""

    code = "credit_refused"


class Bookkeeper:
    """take_report: empties the dispatcher's counts; send_credit: pays one window, raises NotAcknowledged when the
    market cannot take it now, CreditRefused when it never will; send_demand: (layers, experts) activations in
    [started, ended); note_strain: what was counted in the last STRAIN_SECONDS, for how well workers serve."""

    def __init__(
        self,
        *,
        build: str,
        boot: str,
        take_report: Callable[[], WorkReport],
        send_credit: SendCredit,
        send_demand: SendDemand,
        spool: CreditSpool,
        window_seconds: float,
        spool_seconds: float,
        demand_seconds: float,
        note_strain: Callable[[WorkReport], None] = lambda report: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._build, self._boot = build, boot
        self._take_report = take_report
        self._send_credit, self._send_demand = send_credit, send_demand
        self._spool = spool
        spool.hold(boot)
        self._window_seconds, self._spool_seconds = window_seconds, spool_seconds
        self._demand_seconds = demand_seconds
        self._clock = clock
        now = clock()
        self._window = CreditWindow(build, boot, 0, now, now)
        self._spooled_at = now
        self._demand_since = now
        self._note_strain, self._strain_since = note_strain, now
        self._recent: WorkReport | None = None
        self._demand: npt.NDArray[np.uint64] | None = None
        self.totals: WorkReport | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bookkeeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Closes the open window and sends everything once more; what the market does not take stays in the spool."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        self._collect()
        self._close_window()
        self._send_all()
        self._spool.release()

    def step(self) -> None:
        """Collects, writes or closes the window when it is time, and sends what is due."""
        self._collect()
        now = self._clock()
        # Windows end at whole multiples on the clock, so that none crosses an hour: caps count per clock hour.
        if now // self._window_seconds != self._window.started // self._window_seconds:
            self._close_window()
            self._send_all()
        elif now - self._spooled_at >= self._spool_seconds and self._window.rows:
            self._spool.write(self._window)
            self._spooled_at = now
        if self._demand is not None and now - self._demand_since >= self._demand_seconds:
            self._send_demand(self._demand, self._demand_since, now)
            self._demand, self._demand_since = None, now
        if self._recent is not None and now - self._strain_since >= STRAIN_SECONDS:
            recent, self._recent, self._strain_since = self._recent, None, now
            self._note_strain(recent)

    def _run(self) -> None:
        # Windows of an earlier boot come first; the market ignores those it has.
        self._guarded(self._send_all)
        while not self._stopping.wait(TICK_SECONDS):
            self._guarded(self.step)

    @staticmethod
    def _guarded(action: Callable[[], None]) -> None:
        try:
            action()
        except Exception:
            logger.exception("bookkeeping failed; what is spooled is kept and sent later")

    def _collect(self) -> None:
        report = self._take_report()
        self._window.rows.update(report.used_rows)
        self._window.ended = self._clock()
        if report.demand.any():
            self._demand = report.demand.copy() if self._demand is None else self._demand + report.demand
        self.totals = added(self.totals, report)
        self._recent = added(self._recent, report)

    def _close_window(self) -> None:
        window = self._window
        if window.rows:
            self._spool.write(window)
        self._window = CreditWindow(self._build, self._boot, window.number + 1, window.ended, window.ended)
        self._spooled_at = window.ended

    def _send_all(self) -> None:
        for window in self._spool.pending():
            if window.boot == self._boot and window.number == self._window.number:
                continue  # still open
            try:
                self._send_credit(window)
            except NotAcknowledged as error:
                logger.warning("credit window %s/%d is kept and sent again: %s", window.boot, window.number, error)
                return
            except CreditRefused as error:
                logger.error("credit window %s/%d is set aside: %s", window.boot, window.number, error)
                self._spool.set_aside(window)
                continue
            self._spool.acknowledge(window)
