"""market/commands/earnings.py and audits.py: holds end, are voided and restored; trust; adjustments."""

from datetime import timedelta

import pytest
from pytest_django import Settings

from market import commands, queries, replay, store
from market.errors import BadRequest, NotAvailable, UnknownNode
from market.invariants import check_books
from market.ledger import HeldPart, held_until
from tests.builders import MORNING, Device, claimed, demo_build, later, registered, worked
from tests.market.databases import in_threads

DAY = 86_400


@pytest.fixture
def bob(settings: Settings) -> Device:
    settings.HOLD_SECONDS = float(DAY)
    commands.publish_build(demo_build(), now=MORNING)
    return registered()


def balances(device: Device) -> dict[str, int]:
    return queries.balances(device.node_id)


def test_a_hold_begins_with_the_end_of_its_ten_minutes() -> None:
    assert held_until(later(0)) == later(600)
    assert held_until(later(599.9)) == later(600)
    assert held_until(later(600)) == later(1200)


@pytest.mark.django_db
class TestHolds:
    def test_a_reward_is_released_when_its_hold_has_passed_and_not_before(self, bob: Device) -> None:
        amount = worked(bob, claimed(bob))

        early = commands.release_earnings(later(600 + DAY - 1))
        due = commands.release_earnings(later(600 + DAY))
        again = commands.release_earnings(later(600 + DAY))

        assert (early, due, again) == ({}, {bob.node_id: amount}, {})
        assert balances(bob) == {"pending": 0, "available": amount}
        assert check_books().ok

    def test_only_what_is_due_is_released(self, bob: Device) -> None:
        claim = claimed(bob)
        first, second = worked(bob, claim, end=60), worked(bob, claim, end=1260)

        commands.release_earnings(later(600 + DAY))

        assert balances(bob) == {"pending": second, "available": first}

    def test_a_suspended_node_keeps_its_rewards_on_hold_until_it_is_reinstated(self, bob: Device) -> None:
        amount = worked(bob, claimed(bob))
        commands.suspend_node(bob.node_id, reason="odd answers", by="operator", now=later(100))

        during = commands.release_earnings(later(2 * DAY))
        commands.reinstate_node(bob.node_id, by="operator", reason="looked into it", now=later(2 * DAY))

        assert during == {}
        assert commands.release_earnings(later(2 * DAY)) == {bob.node_id: amount}

    def test_a_forfeit_voids_what_is_held_and_leaves_what_is_available(self, bob: Device) -> None:
        claim = claimed(bob)
        first = worked(bob, claim, end=60)
        commands.release_earnings(later(2 * DAY))
        second = worked(bob, claim, end=1260)

        voided = commands.forfeit_pending(bob.node_id, reason="wrong answers", by="operator")

        assert voided == second
        assert balances(bob) == {"pending": 0, "available": first}
        assert check_books().accounts["forfeited"] == second
        assert commands.forfeit_pending(bob.node_id, reason="again", by="operator") == 0
        assert commands.release_earnings(later(3 * DAY)) == {}

    def test_a_forfeit_can_be_taken_back_once(self, bob: Device) -> None:
        amount = worked(bob, claimed(bob))
        commands.forfeit_pending(bob.node_id, reason="wrong answers", by="operator", now=later(100))
        position = store.last_position()

        first = commands.restore_earnings(position, reason="they were right", by="operator", now=later(200))
        second = commands.restore_earnings(position, reason="they were right", by="operator", now=later(200))

        assert (first, second) == (amount, 0)
        assert commands.release_earnings(later(2 * DAY)) == {bob.node_id: amount}
        assert check_books().accounts["forfeited"] == 0
        with pytest.raises(BadRequest):
            commands.restore_earnings(position - 1, reason="x", by="operator")

    def test_parts_say_when_their_rewards_were_earned(self, bob: Device) -> None:
        amount = worked(bob, claimed(bob))
        commands.release_earnings(later(2 * DAY))

        event = [recorded.event for recorded in store.history()][-1]

        assert event.parts == (HeldPart(MORNING + timedelta(minutes=10), amount),)  # type: ignore[union-attr]


@pytest.mark.django_db
class TestTrust:
    def test_passes_add_up_and_a_report_counts_once(self, bob: Device) -> None:
        first = commands.record_audits(bob.node_id, "numpy", 7, "backbone", key="a")
        again = commands.record_audits(bob.node_id, "numpy", 7, "backbone", key="a")
        more = commands.record_audits(bob.node_id, "numpy", 5, "backbone", key="b")

        assert (first, again, more) == (7, 7, 12)

    def test_another_program_on_the_device_starts_without_trust(self, bob: Device) -> None:
        commands.record_audits(bob.node_id, "numpy", 12, "backbone", key="a")
        commands.record_audits(bob.node_id, "wasm-1", 3, "backbone", key="b")

        node = queries.node(bob.node_id)

        assert node is not None
        assert (node.trust, node.trusted_class) == (3, "wasm-1")

    def test_the_trust_of_one_account_is_not_handed_to_the_next(self, bob: Device) -> None:
        first, second = commands.create_owner("first"), commands.create_owner("second")
        commands.record_audits(bob.node_id, "numpy", 12, "backbone", key="a")
        seen = []
        for owner in (first, second):
            commands.link_node(bob.node_id, owner, by="operator", reason="sold")
            node = queries.node(bob.node_id)
            assert node is not None
            seen.append(node.trust)

        assert seen == [12, 0]
        assert replay.check().ok

    def test_a_quarantine_takes_trust_claims_and_held_rewards(self, bob: Device) -> None:
        claim = claimed(bob)
        amount = worked(bob, claim)
        commands.record_audits(bob.node_id, "numpy", 12, "backbone", key="a")

        voided = commands.quarantine_node(bob.node_id, reason="wrong answers", by="audit", now=later(100))
        again = commands.quarantine_node(bob.node_id, reason="wrong answers", by="audit", now=later(101))

        node = queries.node(bob.node_id)
        assert node is not None
        assert (voided, again) == (amount, 0)
        assert (node.suspended_reason, node.quarantined, node.trust) == ("wrong answers", True, 0)
        assert queries.node_claims(bob.node_id) == []
        assert balances(bob) == {"pending": 0}

    def test_it_refuses_impossible_reports(self, bob: Device) -> None:
        with pytest.raises(BadRequest):
            commands.record_audits(bob.node_id, "numpy", 0, "backbone", key="a")
        with pytest.raises(UnknownNode):
            commands.record_audits("nobody", "numpy", 1, "backbone", key="a")
        with pytest.raises(BadRequest):
            commands.quarantine_node(bob.node_id, reason=" ", by="audit")


@pytest.mark.django_db
class TestAdjustments:
    def test_an_adjustment_moves_money_once_per_key(self, bob: Device) -> None:
        first = commands.adjust_balance(bob.node_id, 500, by="alice", reason="lost window", key="1")
        again = commands.adjust_balance(bob.node_id, 500, by="alice", reason="lost window", key="1")
        commands.adjust_balance(bob.node_id, -200, by="alice", reason="too much", key="2")

        assert first == again
        assert balances(bob) == {"available": 300}
        assert check_books().accounts["adjustments"] == -300

    def test_no_adjustment_takes_more_than_there_is(self, bob: Device) -> None:
        commands.adjust_balance(bob.node_id, 500, by="alice", reason="lost window", key="1")

        with pytest.raises(NotAvailable):
            commands.adjust_balance(bob.node_id, -501, by="alice", reason="too much", key="2")

        assert balances(bob) == {"available": 500}

    @pytest.mark.parametrize(
        ("amount", "by", "reason"), [(0, "alice", "x"), (1 << 60, "alice", "x"), (1, "", "x"), (1, "alice", "  ")]
    )
    def test_it_wants_an_amount_a_person_and_a_reason(self, bob: Device, amount: int, by: str, reason: str) -> None:
        with pytest.raises(BadRequest):
            commands.adjust_balance(bob.node_id, amount, by=by, reason=reason, key="1")
        with pytest.raises(BadRequest):
            commands.adjust_balance(bob.node_id, 1, by="alice", reason="x", key="k" * 81)


@pytest.mark.usefixtures("real_database")
def test_timers_that_race_release_everything_once(bob: Device) -> None:
    amount = sum(worked(bob, claimed(bob, layer), end=60 + layer) for layer in range(4))

    in_threads(6, lambda _number: commands.release_earnings(later(2 * DAY)))

    assert balances(bob) == {"pending": 0, "available": amount}
    assert check_books().ok


@pytest.mark.usefixtures("real_database")
def test_a_balance_that_many_take_from_at_once_never_becomes_negative(bob: Device) -> None:
    commands.adjust_balance(bob.node_id, 1000, by="alice", reason="a start", key="start")
    taken: list[int] = []

    def take(number: int) -> None:
        for attempt in range(3):
            try:
                commands.adjust_balance(bob.node_id, -150, by="alice", reason="race", key=f"{number} {attempt}")
                taken.append(150)
            except NotAvailable:
                pass

    in_threads(8, take)

    assert sum(taken) == 900
    assert balances(bob) == {"available": 100}
    assert check_books().ok
