"""The chart of earnings: bars that add up, also for one day and for nothing."""

from datetime import date, timedelta

from frontend.owner.chart import HEIGHT, WIDTH, chart
from frontend.owner.figures import Day

FIRST = date(2026, 3, 1)


def test_the_best_day_fills_the_height_and_parts_stand_on_each_other() -> None:
    drawn = chart([Day(FIRST, 30, 70, 0), Day(FIRST + timedelta(1), 0, 50, 9)])

    best, half = drawn.bars
    assert best.released_height + best.held_height == HEIGHT
    assert best.held_y == 0
    assert best.held_y + best.held_height == best.released_y
    assert half.released_height == HEIGHT / 2
    assert drawn.most == 100
    assert drawn.bars[-1].x + drawn.bars[-1].width <= WIDTH


def test_days_without_earnings_are_an_empty_chart() -> None:
    drawn = chart([Day(FIRST, 0, 0, 0)])

    assert drawn.is_empty
    assert drawn.first == drawn.last == FIRST
