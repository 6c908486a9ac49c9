"""market/incidents.py and market/commands/incidents.py: what was our fault is held against nobody."""

from datetime import datetime, timedelta

import pytest
from pytest_django import Settings

from market import commands, incidents, presence, queries, replay, tasks
from market.errors import BadRequest, IncidentInForce
from market.invariants import check_books
from market.models import Event
from tests.builders import MORNING, Device, claimed, demo_build, later, registered, worked

SPAN = (later(100), later(400))


@pytest.mark.parametrize(
    ("since", "spans", "end"),
    [
        (0, [], 120),
        (0, [(100, 400)], 420),
        (0, [(120, 400)], 120),
        (150, [(100, 400)], 520),
        (400, [(100, 400)], 520),
        (0, [(100, 400), (410, 500)], 510),
        (0, [(100, 400), (200, 300), (350, 500)], 520),
        (0, [(50, 60), (100, 110)], 140),
    ],
)
def test_the_clock_of_a_lease_stands_still_during_incidents(
    since: float, spans: list[tuple[float, float]], end: float
) -> None:
    moments = [(later(start), later(stop)) for start, stop in spans]

    assert incidents.extended(later(since), timedelta(seconds=120), moments) == later(end)


@pytest.mark.django_db
class TestIncident:
    @pytest.fixture
    def bob(self, settings: Settings) -> Device:
        settings.LEASE_SECONDS = 120.0
        settings.HOLD_SECONDS = 86_400.0
        presence.recording_since(MORNING)
        commands.publish_build(demo_build(), now=MORNING)
        return registered()

    def declare(self, start: float = 100, end: float = 400, now: float = 300) -> int:
        return commands.declare_incident(later(start), later(end), by="alice", reason="our network", now=later(now))

    def test_leases_are_longer_by_the_incident(self, bob: Device, monkeypatch: pytest.MonkeyPatch) -> None:
        claimed(bob)
        self.declare()

        def expired_at(seconds: float) -> bool:
            monkeypatch.setattr("django.utils.timezone.now", lambda: later(seconds))
            return bool(tasks.step(later(seconds)).expired_claims)

        assert [expired_at(seconds) for seconds in (300, 419, 421)] == [False, False, True]
        expired = Event.objects.get(name="claim-expired").body
        assert datetime.fromisoformat(expired["last_seen_at"]) == MORNING
        assert replay.check().ok

    def test_nobody_is_punished_while_it_lasts(self, bob: Device) -> None:
        amount = worked(bob, claimed(bob))
        self.declare()

        with pytest.raises(IncidentInForce):
            commands.quarantine_node(bob.node_id, reason="wrong answers", by="audit", now=later(350))
        with pytest.raises(IncidentInForce):
            commands.forfeit_pending(bob.node_id, reason="wrong answers", by="alice", now=later(350))

        assert queries.balances(bob.node_id) == {"pending": amount}
        assert commands.quarantine_node(bob.node_id, reason="wrong answers", by="audit", now=later(400)) == amount

    def test_what_was_punished_in_it_is_undone_and_what_was_not_stays(self, bob: Device) -> None:
        mallory = registered("Mallory")
        worked(mallory, claimed(mallory, layer=1), end=60)
        commands.quarantine_node(mallory.node_id, reason="wrong answers", by="audit", now=later(90))
        amount = worked(bob, claimed(bob))
        commands.quarantine_node(bob.node_id, reason="wrong answers", by="audit", now=later(150))

        incident_id = self.declare()

        node, other = queries.node(bob.node_id), queries.node(mallory.node_id)
        assert node is not None
        assert other is not None
        assert (node.quarantined, other.quarantined) == (False, True)
        assert queries.balances(bob.node_id) == {"pending": amount}
        assert queries.balances(mallory.node_id) == {"pending": 0}
        assert incident_id == 1
        assert check_books().ok
        assert replay.check().ok

    def test_it_refuses_impossible_times(self, bob: Device) -> None:
        for start, end in ((100, 100), (200, 100), (0, 8 * 86_400)):
            with pytest.raises(BadRequest):
                self.declare(start, end)
        with pytest.raises(BadRequest):
            commands.declare_incident(MORNING.replace(tzinfo=None), later(1), by="alice", reason="x")
        with pytest.raises(BadRequest):
            commands.declare_incident(later(0), later(1), by="alice", reason="")
