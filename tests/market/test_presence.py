"""market/presence.py."""

from market import presence
from tests.builders import MORNING, later


def test_it_remembers_when_a_node_was_last_seen() -> None:
    presence.mark_seen("bob", MORNING)
    presence.mark_seen("bob", later(5))
    presence.mark_all_seen(["alice", "carol"], later(7))

    assert presence.last_seen(["bob", "alice", "mallory"]) == {"bob": later(5), "alice": later(7)}
    assert presence.last_seen([]) == {}


def test_it_knows_since_when_it_has_been_listening() -> None:
    assert presence.recording_since(MORNING) == MORNING
    assert presence.recording_since(later(60)) == MORNING
