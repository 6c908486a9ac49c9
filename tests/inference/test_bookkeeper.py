"""The bookkeeper: nothing is paid twice, nothing is lost but what was counted since the last spool write."""

import gc
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from inference.bookkeeper import Bookkeeper, CreditRefused, NotAcknowledged
from inference.credit_spool import CreditSpool, CreditWindow
from inference.work_report import WorkKey, WorkReport

KEY = WorkKey("bob", 7, 0)


class Market:
    """A market that can be away, and the clock of the test."""

    def __init__(self) -> None:
        self.now = 1020.0
        self.away = False
        self.refused: set[int] = set()
        self.rows = 0
        self.windows: dict[str, int] = {}
        self.demands: list[tuple[int, float, float]] = []

    def take_report(self) -> WorkReport:
        rows, self.rows = self.rows, 0
        return WorkReport(np.full((1, 2), rows, np.uint64), Counter({KEY: rows} if rows else {}))

    def credit(self, window: CreditWindow) -> None:
        if self.away:
            raise NotAcknowledged("the market is away")
        if window.number in self.refused:
            raise CreditRefused("no such node")
        self.windows[window.key("bob")] = window.rows[KEY]

    def observe(self, demand: npt.NDArray[np.uint64], since: float, until: float) -> None:
        self.demands.append((int(demand.sum()), since, until))


def keeper(market: Market, folder: Path, boot: str = "boot1") -> Bookkeeper:
    clock: Callable[[], float] = lambda: market.now  # noqa: E731
    return Bookkeeper(
        build="build",
        boot=boot,
        take_report=market.take_report,
        send_credit=market.credit,
        send_demand=market.observe,
        spool=CreditSpool(folder),
        window_seconds=60,
        spool_seconds=10,
        demand_seconds=300,
        clock=clock,
    )


def test_a_window_is_paid_once_when_it_closes(tmp_path: Path) -> None:
    market = Market()
    book = keeper(market, tmp_path)
    for _ in range(60):
        market.rows = 2
        market.now += 1
        book.step()

    assert market.windows == {"build/boot1/0/bob": 120}
    assert [window.rows[KEY] for window in CreditSpool(tmp_path).pending()] == []


def test_a_killed_backbone_is_paid_up_to_its_last_spool_write(tmp_path: Path) -> None:
    market = Market()
    book = keeper(market, tmp_path)
    for _ in range(15):
        market.rows = 1
        market.now += 1
        book.step()
    del book
    gc.collect()  # its lock goes with it, as with the process

    restarted = keeper(market, tmp_path, boot="boot2")
    restarted.stop()

    assert market.windows == {"build/boot1/0/bob": 10}


def test_windows_wait_while_the_market_is_away(tmp_path: Path) -> None:
    market = Market()
    market.away = True
    book = keeper(market, tmp_path)
    for _ in range(3):
        market.rows = 1
        market.now += 60
        book.step()
    assert market.windows == {}

    market.away = False
    market.rows = 1
    market.now += 60
    book.step()

    assert market.windows == {f"build/boot1/{number}/bob": 1 for number in range(4)}


def test_a_window_that_the_market_refuses_is_set_aside_and_holds_up_nothing(tmp_path: Path) -> None:
    market = Market()
    market.refused = {0}
    book = keeper(market, tmp_path)
    for _ in range(2):
        market.rows = 1
        market.now += 60
        book.step()

    assert market.windows == {"build/boot1/1/bob": 1}
    assert [path.suffix for path in tmp_path.iterdir() if path.suffix != ".lock"] == [".refused"]


def test_stopping_pays_the_open_window(tmp_path: Path) -> None:
    market = Market()
    book = keeper(market, tmp_path)
    market.rows = 5

    book.stop()

    assert market.windows == {"build/boot1/0/bob": 5}


def test_demand_is_reported_once_per_interval(tmp_path: Path) -> None:
    market = Market()
    book = keeper(market, tmp_path)
    for _ in range(5):
        market.rows = 1
        market.now += 60
        book.step()

    # Each report counts its rows for two experts.
    assert market.demands == [(10, 1020.0, 1320.0)]


def test_how_well_workers_serve_is_told_every_minute(tmp_path: Path) -> None:
    market = Market()
    told: list[int] = []
    book = Bookkeeper(
        build="build",
        boot="boot1",
        take_report=market.take_report,
        send_credit=market.credit,
        send_demand=market.observe,
        spool=CreditSpool(tmp_path),
        window_seconds=600,
        spool_seconds=600,
        demand_seconds=600,
        note_strain=lambda report: told.append(int(report.demand.sum())),
        clock=lambda: market.now,
    )
    for _ in range(150):
        market.rows, market.now = 1, market.now + 1
        book.step()

    assert told == [120, 120]  # two experts, sixty seconds
