"""`manage.py demo m3` as a test: real processes fill the market, are killed, and others heal what they left."""

import pytest

from inference.demos import m3
from tests.model_files import DEMO_MODEL

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def test_strangers_fill_and_heal_the_market_and_every_text_comes_whole() -> None:
    narrated: list[str] = []

    figures = m3.run(DEMO_MODEL, narrated.append)

    assert figures.lost_experts > 0
    assert figures.restart_lost_experts > 0
    assert figures.credited_microcredits > 0
    assert figures.positions > 0
    assert figures.max_abs_diff == 0.0
    assert figures.replay.endswith("equal")
    assert any("every one whole" in line for line in narrated)
