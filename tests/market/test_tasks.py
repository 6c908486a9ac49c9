"""market/tasks.py."""

import pytest
from pytest_django import Settings

from market import commands, presence, tasks
from tests.builders import MORNING, claimed, demo_build, later, registered

pytestmark = pytest.mark.django_db


def test_a_step_expires_leases_and_may_be_repeated(settings: Settings) -> None:
    settings.LEASE_SECONDS = 120.0
    presence.recording_since(MORNING)
    commands.publish_build(demo_build())
    claim = claimed(registered())

    reports = [tasks.step(later(seconds)) for seconds in (60, 121, 122)]

    assert [report.expired_claims for report in reports] == [(), (claim.claim_id,), ()]


def test_the_task_runs_a_step_under_the_name_that_the_timetable_calls() -> None:
    assert tasks.upkeep.name == "market.upkeep"
    assert tasks.upkeep() is None
