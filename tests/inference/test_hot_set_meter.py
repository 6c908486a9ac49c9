"""inference/hot_set_meter.py: fading means of what calls ask for and cost."""

import numpy as np
import pytest

from inference.hot_set_meter import PRIOR_BYTES_PER_SECOND, LayerCounts, LoadMeter, StepTimes

BYTES = np.array([4_000_000, 8_000_000], np.int64)


def rows(*counts: int) -> np.ndarray:
    return np.array(counts, np.uint64)


def test_it_gives_rows_per_call_and_the_measured_times() -> None:
    counts, meter = LayerCounts((2, 2)), LoadMeter(BYTES, 2)
    counts.add(0, rows(3, 1), StepTimes(0.1, 0.02, 4))
    counts.add(0, rows(1, 1), StepTimes(0.3, 0.04, 2))

    loads = meter.read(counts.copy(), 2.0)

    assert loads.rows_per_call.tolist() == [[2.0, 1.0], [0.0, 0.0]]
    assert loads.calls_per_second.tolist() == pytest.approx([1.0, 0.0])
    assert loads.wait_seconds.tolist() == pytest.approx([0.2, 0.0])
    assert loads.seconds_per_row.tolist() == pytest.approx([0.01, 0.02])  # layer 1: twice the bytes


def test_before_anything_was_computed_a_row_costs_reading_its_expert_once() -> None:
    loads = LoadMeter(BYTES, 2).read(LayerCounts((2, 2)), 1.0)

    assert loads.seconds_per_row.tolist() == (BYTES / PRIOR_BYTES_PER_SECOND).tolist()


def test_what_is_long_ago_fades() -> None:
    counts, meter = LayerCounts((2, 2)), LoadMeter(BYTES, 2)
    counts.add(0, rows(8, 0), StepTimes(0.1))
    meter.read(counts.copy(), 1.0)
    counts.add(0, rows(0, 8), StepTimes(0.1))

    loads = meter.read(counts.copy(), 300.0)

    assert loads.rows_per_call[0, 0] < 0.1
    assert loads.rows_per_call[0, 1] > 7.9


def test_a_wait_that_is_not_measured_any_more_is_believed_less_and_less() -> None:
    counts, meter = LayerCounts((2, 2)), LoadMeter(BYTES, 2)
    counts.add(0, rows(1, 0), StepTimes(0.1))
    seen = [float(meter.read(counts.copy(), 5.0).wait_seconds[0])]
    for _ in range(3):
        counts.add(0, rows(1, 0), StepTimes(0.0, 0.01, 1))
        seen.append(float(meter.read(counts.copy(), 5.0).wait_seconds[0]))
    counts.add(0, rows(1, 0), StepTimes(0.1))
    seen.append(float(meter.read(counts.copy(), 5.0).wait_seconds[0]))

    assert seen == pytest.approx([0.1, 0.098, 0.09604, 0.0941192, 0.1])
