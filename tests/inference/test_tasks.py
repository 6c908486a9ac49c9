"""inference/tasks.py: what must be written is written, also when the database comes back late."""

import pytest
from django.db import OperationalError

from inference import tasks

pytestmark = pytest.mark.django_db


class Database:
    """Away for the first `outages` attempts."""

    def __init__(self, outages: int) -> None:
        self.outages = outages
        self.written = 0

    def write(self) -> None:
        if self.outages:
            self.outages -= 1
            raise OperationalError("the connection is closed")
        self.written += 1


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr("inference.tasks.connection.close", lambda: None)


def test_the_end_of_a_generation_is_written_when_the_database_is_back() -> None:
    database = Database(outages=3)

    tasks.patiently(database.write)

    assert (database.outages, database.written) == (0, 1)


def test_a_database_that_stays_away_is_an_error_in_the_end() -> None:
    database = Database(outages=10**9)

    with pytest.raises(OperationalError):
        tasks.patiently(database.write, patience_seconds=0.05)

    assert database.written == 0
