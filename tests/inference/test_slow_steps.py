"""inference/slow_steps.py: a layer that waited says for whom."""

import logging

import numpy as np
import pytest

from inference.slow_steps import SlowSteps, Wait
from inference.work_report import Moment
from tests.inference.test_dispatch import EVERYTHING, Build, build, plain

__all__ = ["build", "plain"]  # fixtures

QUICK, LATE = Wait("0" * 16, 12, 0.1, "answered"), Wait("f" * 16, 7, 2.0, "late")


def test_the_line_names_the_layer_and_the_one_that_all_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    slow = SlowSteps(0.5)

    told = slow.look(3, 16, 1.9, [QUICK, LATE])

    (record,) = caplog.records
    assert told
    assert record.getMessage().startswith(f"layer 3 waited 1.90 s for node {'f' * 16} (late, 7 rows)")
    assert vars(record)["waited_for"][1] == {"node_id": "0" * 16, "rows": 12, "seconds": 0.1, "outcome": "answered"}
    assert vars(record)["layer"] == 3


def test_a_quick_layer_and_one_that_asked_nobody_are_not_told(caplog: pytest.LogCaptureFixture) -> None:
    slow = SlowSteps(0.5)

    assert not slow.look(3, 16, 0.4, [QUICK])
    assert not slow.look(3, 16, 9.0, [])
    assert caplog.records == []


def test_a_flood_of_slow_layers_is_one_line_that_counts_them(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SlowSteps(0.5)

    assert all(slow.look(layer, 1, 1.0, [LATE]) for layer in range(5))
    monkeypatch.setattr("inference.slow_steps.LINE_SECONDS", 0.0)
    slow.look(6, 1, 1.0, [LATE])

    assert len(caplog.records) == 2
    assert "4 other slow layers" in caplog.records[1].getMessage()


def test_a_worker_that_never_answers_is_named_by_the_layer_that_waited(
    build: Build, plain: np.ndarray, caplog: pytest.LogCaptureFixture
) -> None:
    swarm = build(EVERYTHING, deadline_seconds=0.3, slow_step_seconds=0.1)
    swarm.transport.workers[1].fault = lambda dispatch, outcome: None
    caplog.set_level(logging.WARNING, "inference.slow_steps")

    logits = swarm.logits(steps=1)

    lines = [record for record in caplog.records if record.name == "inference.slow_steps"]
    assert len(logits)
    assert "late" in lines[0].getMessage()
    assert vars(lines[0])["waited_for"][0]["outcome"] == "late"
    assert swarm.dispatcher.take_report().moments[Moment.SLOW_STEPS] >= 1
