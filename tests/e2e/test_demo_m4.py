"""`manage.py demo m4` as a test: sequences hide round trips, throttled workers add up, the bits stay."""

import pytest

from inference.demos import m4
from tests.model_files import DEMO_MODEL

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def test_sequences_hide_round_trips_and_workers_add_up() -> None:
    narrated: list[str] = []

    figures = m4.run(DEMO_MODEL, narrated.append)

    assert figures.many > 16 * figures.one
    assert figures.many / figures.bound > 0.7
    (_, few, _), *_, (_, many, _) = figures.rates
    assert many > 2 * few
    assert figures.hot[1] < figures.cold[1] == 1.0
    assert figures.positions > 0
    assert figures.max_abs_diff == 0.0
    assert any("sequences on 4 lanes: 32" in line for line in narrated)
