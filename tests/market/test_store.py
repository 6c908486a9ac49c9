"""market/store.py: one contract for SQLite and PostgreSQL, with real commits and real races."""

import threading
import time

import pytest
from django.db import IntegrityError, connection, transaction

from market import store
from market.errors import Busy, Conflict, KeyReused
from market.events import BuildPublished, Event, NodeRegistered, NodeSuspended, PolicyChanged
from market.models import AppendOnly, Node, Posting
from market.models import Event as EventRow
from tests.builders import FINGERPRINT, MORNING, demo_build
from tests.market.databases import in_threads


def registration(node_id: str) -> NodeRegistered:
    return NodeRegistered(node_id, "numpy", None, node_id.rjust(64, "0"), MORNING)


def suspension(node_id: str, reason: str = "tested") -> NodeSuspended:
    return NodeSuspended(node_id, reason, "operator", MORNING)


def policy(budget: int) -> PolicyChanged:
    return PolicyChanged(budget, 1, 1, 8, 70, 5, "operator", "tested", MORNING)


def post(*amounts: int) -> None:
    """Writes the postings of one event directly, past every check of the program."""
    with transaction.atomic():
        for line, amount in enumerate(amounts):
            Posting.objects.create(event_position=1, line=line, account=f"account {line}", amount_microcredits=amount)


@pytest.mark.usefixtures("real_database")
class TestEventStoreContract:
    def test_it_numbers_events_without_gaps_and_streams_by_themselves(self) -> None:
        store.append([BuildPublished(demo_build(), MORNING)])
        store.append([registration("bob"), suspension("bob"), registration("mallory")])

        places = [(event.position, event.stream, event.version) for event in store.history()]

        assert places == [
            (1, f"build/{FINGERPRINT}", 1),
            (2, "node/bob", 1),
            (3, "node/bob", 2),
            (4, "node/mallory", 1),
        ]

    def test_what_was_appended_is_read_back_equal(self) -> None:
        events: list[Event] = [BuildPublished(demo_build(), MORNING), registration("bob")]

        appended = store.append(events)

        assert list(store.history()) == list(appended.events)
        assert [recorded.event for recorded in store.history()] == events
        assert {recorded.append_position for recorded in store.history()} == {1}

    def test_a_failed_append_leaves_nothing_and_no_gap(self) -> None:
        store.append([registration("bob")])

        def cut_off() -> None:
            with store.writing() as writer:
                writer.append([suspension("bob")])
                raise RuntimeError("power cut")

        with pytest.raises(RuntimeError, match="power cut"):
            cut_off()
        store.append([registration("alice")])

        assert [event.position for event in store.history()] == [1, 2]
        assert Node.objects.get(node_id="bob").suspended_reason == ""

    def test_an_append_at_an_old_version_is_a_conflict(self) -> None:
        store.append([registration("bob")])
        store.append([suspension("bob")], expected={"node/bob": 1})

        with pytest.raises(Conflict, match="somebody was first"):
            store.append([suspension("bob", "again")], expected={"node/bob": 1})

        assert store.last_position() == 2

    def test_a_writer_that_bypasses_the_lock_meets_the_unique_version(self, real_database: str) -> None:
        store.append([registration("bob")])
        written, conflicts = threading.Event(), []

        def first() -> None:
            with transaction.atomic():
                store.record([suspension("bob", "first")], {}, None)
                written.set()
                time.sleep(0.2)

        def second() -> None:
            written.wait()
            try:
                with transaction.atomic():
                    store.record([suspension("bob", "second")], {}, None)
            except Conflict as problem:
                conflicts.append(problem)

        in_threads(2, lambda number: (first, second)[number]())

        # SQLite lets nobody past: its transactions are one after another even without the store's lock.
        assert len(conflicts) == (1 if real_database == "postgresql" else 0)
        assert [event.version for event in store.history()] == list(range(1, 4 - len(conflicts)))

    def test_an_expected_stream_to_which_nothing_is_appended_is_looked_at_too(self) -> None:
        store.append([registration("bob")])

        with pytest.raises(Conflict, match="node/bob is at version 1, not 2"):
            store.append([registration("alice")], expected={"node/bob": 2})
        store.append([registration("alice")], expected={"node/bob": 1})

        assert store.last_position() == 2

    def test_the_same_key_returns_the_first_result(self) -> None:
        first = store.append([registration("bob"), suspension("bob")], key="once")
        store.append([registration("alice")])

        again = store.append([registration("mallory"), suspension("mallory")], key="once")

        assert (first.repeated, again.repeated) == (False, True)
        assert again.events == first.events
        assert store.last_position() == 3

    def test_a_key_of_another_kind_of_event_is_refused(self) -> None:
        store.append([registration("bob")], key="once")

        with pytest.raises(KeyReused):
            store.append([policy(1)], key="once")

    @pytest.mark.parametrize(
        "statement",
        [
            "UPDATE market_event SET name = 'forged'",
            "UPDATE market_event SET body = body",
            "DELETE FROM market_event",
            "DELETE FROM market_event WHERE position = 1",
        ],
    )
    def test_the_database_refuses_to_change_history(self, statement: str) -> None:
        store.append([registration("bob")])

        with pytest.raises(IntegrityError, match="append-only"), connection.cursor() as cursor:
            cursor.execute(statement)

        assert store.last_position() == 1

    def test_the_model_refuses_to_change_history(self) -> None:
        store.append([registration("bob")])
        row = EventRow.objects.get()

        for change in (row.save, row.delete, EventRow.objects.all().delete, lambda: EventRow.objects.update(name="x")):
            with pytest.raises(AppendOnly):
                change()

    def test_the_database_refuses_a_row_in_the_place_of_another(self, real_database: str) -> None:
        store.append([registration("bob")])
        verb = "INSERT OR REPLACE" if real_database == "sqlite" else "INSERT"

        with pytest.raises(IntegrityError), connection.cursor() as cursor:
            cursor.execute(
                f"{verb} INTO market_event (position, stream, version, append_position, name, schema_version, body,"
                " recorded_at) SELECT position, stream, version, append_position, 'forged', schema_version, body,"
                " recorded_at FROM market_event"
            )

        assert EventRow.objects.get().name == "node-registered"

    def test_the_database_refuses_to_commit_unbalanced_postings(self) -> None:
        with pytest.raises(IntegrityError):
            post(-5, 4)

        assert not Posting.objects.exists()

    def test_the_database_refuses_to_remove_one_half_of_an_entry(self) -> None:
        post(-5, 5)

        with pytest.raises(IntegrityError):
            Posting.objects.filter(line=1).delete()
        with pytest.raises(IntegrityError, match=r"never updated|append-only"):
            Posting.objects.filter(line=1).update(amount_microcredits=6)

        assert Posting.objects.count() == 2

    def test_racing_writers_leave_no_gap_and_a_follower_misses_nothing(self) -> None:
        writers, appends = 4, 15
        followed: list[int] = []
        done = threading.Event()

        def follow() -> None:
            while not done.is_set() or (followed[-1] if followed else 0) < store.last_position():
                after = followed[-1] if followed else 0
                followed.extend(recorded.position for recorded in store.history(after=after))
                time.sleep(0.002)

        def work(number: int) -> None:
            if number == writers:
                follow()
                return
            for count in range(appends):
                store.append([registration(f"node-{number}-{count}"), suspension(f"node-{number}-{count}")])
            if number == 0:
                time.sleep(0.05)
                done.set()

        in_threads(writers + 1, work)
        followed.extend(recorded.position for recorded in store.history(after=followed[-1]))

        assert followed == list(range(1, writers * appends * 2 + 1))

    def test_of_racing_appends_at_one_version_exactly_one_wins(self) -> None:
        store.append([registration("bob")])
        outcomes: list[str] = []

        def work(number: int) -> None:
            try:
                store.append([suspension("bob", f"by {number}")], expected={"node/bob": 1})
                outcomes.append("won")
            except Conflict:
                outcomes.append("lost")

        in_threads(8, work)

        assert sorted(outcomes) == ["lost"] * 7 + ["won"]

    def test_a_racing_key_is_used_once(self) -> None:
        results: list[store.Appended] = []

        in_threads(6, lambda number: results.append(store.append([policy(number)], key="once")))

        assert {result.position for result in results} == {1}
        assert sorted(result.repeated for result in results) == [False] + [True] * 5

    def test_a_writer_that_waits_too_long_is_told_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(store, "LOCK_TIMEOUT_SECONDS", 0.2)
        held, release = threading.Event(), threading.Event()
        problems: list[str] = []

        def work(number: int) -> None:
            if number == 0:
                with store.writing():
                    held.set()
                    release.wait(10)
                return
            held.wait(10)
            try:
                store.append([registration("bob")])
            except Busy as problem:
                problems.append(problem.code)
            finally:
                release.set()

        in_threads(2, work)

        assert problems == ["busy"]
        assert store.last_position() == 0


@pytest.mark.usefixtures("sqlite_database")
def test_a_transaction_inside_a_transaction_does_not_wait_for_itself() -> None:
    with store.writing() as writer:
        writer.append([registration("bob")])
        store.append([suspension("bob")])

    assert store.last_position() == 2
