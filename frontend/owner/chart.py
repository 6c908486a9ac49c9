"""Earnings per day as bars of an SVG that the server draws: it is there without JavaScript. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from frontend.owner.figures import Day

WIDTH, HEIGHT = 600, 140
GAP = 2


@dataclass(frozen=True)
class Bar:
    """One day: x and width of its bar; y and height of the part that is released, and of the part on hold above it."""

    day: date
    x: float
    width: float
    released_y: float
    released_height: float
    held_y: float
    held_height: float
    earned: int
    held: int


@dataclass(frozen=True)
class Chart:
    bars: tuple[Bar, ...]
    most: int
    width: int = WIDTH
    height: int = HEIGHT

    @property
    def is_empty(self) -> bool:
        return self.most == 0

    @property
    def first(self) -> date:
        return self.bars[0].day

    @property
    def last(self) -> date:
        return self.bars[-1].day


def chart(days: Sequence[Day]) -> Chart:
    """Bars from the bottom up, the best day as high as the picture; `days` holds at least one."""
    most = max(day.earned for day in days)
    step = WIDTH / len(days)
    scale = HEIGHT / most if most else 0.0
    bars = []
    for number, day in enumerate(days):
        released, held = day.released * scale, day.held * scale
        bars.append(
            Bar(
                day=day.day,
                x=round(number * step, 2),
                width=round(step - GAP, 2),
                released_y=round(HEIGHT - released, 2),
                released_height=round(released, 2),
                held_y=round(HEIGHT - released - held, 2),
                held_height=round(held, 2),
                earned=day.earned,
                held=day.held,
            )
        )
    return Chart(tuple(bars), most)
