"""market/presence.py."""

from pytest_django import Settings

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


def test_it_works_the_same_over_redis(settings: Settings, redis_database: str) -> None:
    backend = "django.core.cache.backends.redis.RedisCache"
    settings.CACHES = {"default": {"BACKEND": backend, "LOCATION": redis_database}}

    presence.mark_seen("bob", MORNING)
    presence.mark_all_seen(["alice"], later(7))

    assert presence.last_seen(["bob", "alice", "mallory"]) == {"bob": MORNING, "alice": later(7)}
    assert presence.recording_since(MORNING) == MORNING
    assert presence.recording_since(later(60)) == MORNING


def test_a_closed_connection_and_who_is_silent_are_hints_that_fade() -> None:
    presence.mark_left("bob", MORNING)

    assert presence.left(["bob", "alice"]) == {"bob": MORNING}
    assert presence.silent_nodes() == []
    presence.note_silent({"carol", "bob"})
    assert presence.silent_nodes() == ["bob", "carol"]


def test_a_device_that_is_connected_again_has_not_left() -> None:
    presence.mark_left("bob", MORNING)
    presence.mark_left("carol", MORNING)

    presence.mark_connected("bob", later(9))

    assert presence.left(["bob", "carol"]) == {"carol": MORNING}
    assert presence.last_seen(["bob"]) == {"bob": later(9)}
