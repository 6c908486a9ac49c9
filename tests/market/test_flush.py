"""manage.py flush: empties what may otherwise never be emptied, and leaves the guards in place."""

import pytest
from django.core.management import call_command
from django.db import IntegrityError, connection

from market import commands, store
from tests.builders import FINGERPRINT, MORNING, claimed, demo_build, later, registered


def delete_events() -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM market_event")


@pytest.mark.usefixtures("real_database")
def test_it_empties_everything_and_history_is_guarded_again() -> None:
    for _ in range(2):
        commands.publish_build(demo_build(), now=MORNING)
        bob = registered()
        claimed(bob)
        commands.credit_work("k", FINGERPRINT, bob.node_id, MORNING, later(60), [(1, 0, 1000)])
        assert store.last_position() == 4

        call_command("flush", interactive=False, verbosity=0)

        assert store.last_position() == 0
    registered()
    with pytest.raises(IntegrityError, match="append-only"):
        delete_events()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("round_number", [1, 2])
def test_a_transaction_test_starts_empty_after_another_one(round_number: int) -> None:
    assert store.last_position() == 0
    registered()
    assert store.last_position() == 1
