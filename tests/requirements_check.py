"""One way to say that a test needs something of the system: browsers, nginx, a PostgreSQL server."""

import os

import pytest


def need(name: str, available: object, hint: str) -> None:
    """Skips the test unless `available` is true; under REQUIRE_ALL=1 fails it instead.

    hint: the one line that makes it available, for example `apt-get install -y postgresql`.
    """
    if available:
        return
    reason = f"needs {name}: {hint}"
    if os.environ.get("REQUIRE_ALL") == "1":
        pytest.fail(f"REQUIRE_ALL=1, but this test {reason}", pytrace=False)
    pytest.skip(reason)
