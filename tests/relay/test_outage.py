"""relay/outage.py."""

import logging

import pytest

from relay.outage import Outage

logger = logging.getLogger("of this test")


def test_each_outage_is_told_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage(logger, "the market")

    outage.answered()
    for _ in range(2):
        outage.failed(OSError("refused"))
        outage.failed(OSError("refused again"))
        outage.answered()
        outage.answered()

    sentences = [record.message for record in caplog.records]
    assert sentences[0] == "the market cannot be reached: refused"
    assert sentences[1].startswith("the market answers again after 0.0 s and 2 failures")
    assert len(sentences) == 4


def test_a_failure_is_fresh_for_a_moment_and_until_somebody_got_an_answer() -> None:
    patient, curious = Outage(logger, "Redis", quiet_seconds=60.0), Outage(logger, "Redis", quiet_seconds=0.0)

    before = patient.is_fresh
    patient.failed("silence")
    curious.failed("silence")

    assert (before, patient.is_fresh, curious.is_fresh) == (False, True, False)
    patient.answered()
    assert not patient.is_fresh
