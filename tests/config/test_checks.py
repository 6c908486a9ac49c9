"""config/checks.py: every check fires on its impossible combination, and only then."""

from typing import Any

import pytest
from pytest_django import Settings

from config import checks


@pytest.fixture(autouse=True)
def _local_server(settings: Settings) -> None:
    """The defaults: Django's test set-up adds the host `testserver`, which would make the server a public one."""
    settings.ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]"]


IMPOSSIBLE: list[tuple[str, dict[str, Any]]] = [
    ("config.E001", {"PUBLIC_URL": "swarm.example"}),
    ("config.E001", {"PUBLIC_URL": "ftp://swarm.example", "SECRET_KEY": "a real one"}),
    ("config.E002", {"ALLOWED_HOSTS": ["swarm.example"]}),
    ("config.E002", {"PUBLIC_URL": "https://swarm.example"}),
    ("config.E003", {"ALLOWED_HOSTS": ["swarm.example"], "DEBUG": True, "SECRET_KEY": "a real one"}),
    ("config.E004", {"LEASE_SECONDS": 30.0, "RELAY_PING_SECONDS": 10.0}),
    ("config.E005", {"UPKEEP_SECONDS": 120.0, "LEASE_SECONDS": 120.0}),
    ("config.E006", {"RELAY_RECHECK_SECONDS": 31.0}),
    ("config.E007", {"SPOOL_SECONDS": 61.0, "CREDIT_WINDOW_SECONDS": 60.0}),
    ("config.E008", {"BACKBONE_SEQUENCES": 1, "BACKBONE_LANES": 2}),
    ("config.E010", {"REGISTRATION": "maybe"}),
    ("config.E011", {"LOG_FORMAT": "xml"}),
]


@pytest.mark.parametrize(("identifier", "values"), IMPOSSIBLE)
def test_it_names_an_impossible_combination(settings: Settings, identifier: str, values: dict[str, Any]) -> None:
    for name, value in values.items():
        setattr(settings, name, value)

    found = [message.id for message in checks.always(None)]

    assert found == [identifier]


def test_the_defaults_pass_and_a_public_server_with_its_own_key_passes(settings: Settings) -> None:
    assert checks.always(None) == []

    settings.ALLOWED_HOSTS = ["swarm.example"]
    settings.PUBLIC_URL = "https://swarm.example"
    settings.SECRET_KEY = "a real one"

    assert checks.always(None) == []


def test_a_deployment_needs_redis_and_is_warned_of_sqlite(settings: Settings) -> None:
    settings.REDIS_URL = ""

    found = {message.id for message in checks.before_deployment(None)}

    assert found == {"config.E009", "config.W001"}
