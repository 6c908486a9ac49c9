"""market/commands/payouts.py: two people, one payment per item, money that is never in two places."""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from django.db import IntegrityError, transaction
from pytest_django import Settings

from market import commands, queries, store
from market.errors import (
    BadRequest,
    Busy,
    KeyReused,
    MarketError,
    NothingToPay,
    ProviderFailed,
    SamePerson,
    UnknownPayout,
    WrongState,
)
from market.invariants import check_books
from market.models import PayoutBatch, PayoutItem
from market.payout_providers import CsvProvider, Payment
from tests.builders import MORNING, Device, Why, claimed, demo_build, later, payable_device, registered, worked
from tests.market.databases import in_threads

EARNED = 3932
WHY: Why = {"by": "alice", "reason": "March"}


class Bank:
    """A provider in memory that counts how often it paid what; told to, it breaks after it has paid."""

    name = "bank"

    def __init__(self) -> None:
        self.paid: dict[str, int] = {}
        self.asked = 0
        self.broken = False

    def submit(self, batch_key: str, payments: Sequence[Payment]) -> str:
        self.asked += 1
        for payment in payments:
            self.paid.setdefault(payment.item_id, payment.amount_microcredits)
        if self.broken:
            raise ProviderFailed("the line was cut")
        return f"reference of {batch_key}"


@pytest.fixture
def _market(settings: Settings) -> None:
    settings.HOLD_SECONDS = 0.0
    commands.publish_build(demo_build(), now=MORNING)


@pytest.fixture
def devices(_market: None) -> list[Device]:
    """Two accounts with one device each, EARNED available."""
    found = [payable_device(name, layer=number) for number, name in enumerate(["Bob", "Carol"])]
    commands.release_earnings(later(600))
    return found


def draft(key: str = "2026-03", *, minimum: int = 1, reserve: int = 0, by: str = "alice") -> int:
    return commands.draft_payout(
        key=key, by=by, reason="March", minimum_microcredits=minimum, reserve_percent=reserve, now=later(700)
    )


def sent(bank: Bank, key: str = "2026-03") -> list[PayoutItem]:
    """A batch that the bank has; its items."""
    batch_id = draft(key)
    commands.approve_payout(batch_id, by="bob", reason="checked")
    commands.send_payout(batch_id, bank, **WHY)
    return list(PayoutItem.objects.filter(batch_id=batch_id).order_by("item_id"))


def balance(device: Device) -> dict[str, int]:
    return {kind: amount for kind, amount in queries.balances(device.node_id).items() if amount}


@pytest.mark.django_db
class TestDraft:
    def test_it_takes_what_is_available_out_of_reach(self, devices: list[Device]) -> None:
        batch_id = draft()

        batch = PayoutBatch.objects.get(batch_id=batch_id)
        assert (batch.state, batch.items, batch.total_microcredits) == ("drafted", 2, 2 * EARNED)
        assert [balance(device) for device in devices] == [{"in_transit": EARNED}] * 2
        with pytest.raises(NothingToPay):
            draft("another key")

    def test_the_same_key_drafts_once(self, devices: list[Device]) -> None:
        assert draft() == draft()
        assert PayoutBatch.objects.count() == 1

    def test_a_reserve_stays_behind(self, devices: list[Device]) -> None:
        draft(reserve=5)

        assert balance(devices[0]) == {"in_transit": EARNED * 95 // 100, "available": EARNED - EARNED * 95 // 100}

    def test_the_minimum_counts_for_all_devices_of_an_account(self, devices: list[Device]) -> None:
        owner_id = queries.node(devices[0].node_id).owner_id  # type: ignore[union-attr]

        with pytest.raises(NothingToPay):
            draft("too little", minimum=EARNED + 1)
        commands.link_node(devices[1].node_id, owner_id, by="owner", reason="both are mine")
        draft("enough", minimum=2 * EARNED)

        assert PayoutItem.objects.count() == 2

    def test_rewards_on_hold_and_after_the_cutoff_stay_out(self, devices: list[Device]) -> None:
        bob = devices[0]
        claim = claimed(bob, layer=5)
        late = worked(bob, claim, 500, end=1300)
        commands.release_earnings(later(1800))
        worked(bob, claim, 700, end=2500)

        commands.draft_payout(
            key="k", **WHY, minimum_microcredits=1, reserve_percent=0, cutoff=later(1200), now=later(2600)
        )

        assert balance(bob)["in_transit"] == EARNED
        assert balance(bob)["available"] == late

    def test_suspended_erased_and_payeeless_devices_stay_out(self, devices: list[Device]) -> None:
        commands.suspend_node(devices[0].node_id, reason="odd", by="operator")
        commands.erase_node(devices[1].node_id, by="owner", reason="asked for it")
        payable_device("Dave", layer=3, payee="")
        nobody = registered("nobody's")
        worked(nobody, claimed(nobody, 4))
        commands.release_earnings(later(1200))

        with pytest.raises(NothingToPay):
            draft()

    def test_it_refuses_impossible_wishes_and_used_keys(self, devices: list[Device]) -> None:
        commands.adjust_balance(devices[0].node_id, 1, key="x", **WHY)
        for minimum, reserve, key in ((0, 0, "k"), (1, 100, "k"), (1, -1, "k"), (1, 0, ""), (1, 0, "k" * 81)):
            with pytest.raises(BadRequest):
                draft(key, minimum=minimum, reserve=reserve)
        store.append([event.event for event in store.history() if event.event.NAME == "node-linked"], key="payout/used")
        with pytest.raises(KeyReused):
            draft("used")


@pytest.mark.django_db
class TestApproval:
    def test_a_second_person_approves_once(self, devices: list[Device]) -> None:
        batch_id = draft()

        with pytest.raises(SamePerson):
            commands.approve_payout(batch_id, by="Alice", reason="checked")
        first = commands.approve_payout(batch_id, by="bob", reason="checked")
        again = commands.approve_payout(batch_id, by="bob", reason="checked")

        assert (first, again) == (True, False)
        with pytest.raises(WrongState):
            commands.approve_payout(batch_id, by="carol", reason="checked")

    def test_the_database_refuses_the_same_person_too(self, devices: list[Device]) -> None:
        batch_id = draft()

        with pytest.raises(IntegrityError), transaction.atomic():
            PayoutBatch.objects.filter(batch_id=batch_id).update(approved_by="alice")

    def test_a_node_that_was_suspended_since_stops_approval_and_sending(self, devices: list[Device]) -> None:
        batch_id = draft()
        commands.suspend_node(devices[0].node_id, reason="odd", by="operator")
        with pytest.raises(WrongState, match="suspended since"):
            commands.approve_payout(batch_id, by="bob", reason="checked")
        commands.reinstate_node(devices[0].node_id, by="operator", reason="fine")
        commands.approve_payout(batch_id, by="bob", reason="checked")
        commands.suspend_node(devices[0].node_id, reason="odd", by="operator")

        with pytest.raises(WrongState, match="suspended since"):
            commands.send_payout(batch_id, Bank(), **WHY)

    def test_cancelling_gives_the_money_back_once(self, devices: list[Device]) -> None:
        batch_id = draft()
        commands.approve_payout(batch_id, by="bob", reason="checked")

        first, again = commands.cancel_payout(batch_id, **WHY), commands.cancel_payout(batch_id, **WHY)

        assert (first, again) == (True, False)
        assert [balance(device) for device in devices] == [{"available": EARNED}] * 2
        with pytest.raises(WrongState):
            commands.send_payout(batch_id, Bank(), **WHY)
        assert draft("again") != batch_id


@pytest.mark.django_db
class TestSending:
    def test_an_unapproved_batch_is_not_sent(self, devices: list[Device]) -> None:
        bank = Bank()

        with pytest.raises(WrongState):
            commands.send_payout(draft(), bank, **WHY)

        assert bank.asked == 0

    def test_a_cut_line_is_tried_again_and_pays_once(self, devices: list[Device]) -> None:
        bank, batch_id = Bank(), draft()
        commands.approve_payout(batch_id, by="bob", reason="checked")
        bank.broken = True
        with pytest.raises(ProviderFailed):
            commands.send_payout(batch_id, bank, **WHY)
        with pytest.raises(WrongState):
            commands.cancel_payout(batch_id, **WHY)
        bank.broken = False

        references = {commands.send_payout(batch_id, bank, **WHY) for _ in range(2)}

        assert references == {f"reference of payout-{batch_id:06d}"}
        assert bank.asked == 2
        assert sum(bank.paid.values()) == 2 * EARNED

    def test_a_batch_stays_with_its_provider(self, devices: list[Device], tmp_path: Path) -> None:
        bank, batch_id = Bank(), draft()
        commands.approve_payout(batch_id, by="bob", reason="checked")
        bank.broken = True
        with pytest.raises(ProviderFailed):
            commands.send_payout(batch_id, bank, **WHY)

        with pytest.raises(WrongState, match="bank"):
            commands.send_payout(batch_id, CsvProvider(tmp_path), **WHY)

    def test_items_settle_fail_and_come_back_and_the_last_one_closes_the_batch(self, devices: list[Device]) -> None:
        first, second = sent(Bank())

        settled = [commands.settle_item(first.item_id, reference="b1", by="alice") for _ in range(2)]
        failed = [commands.fail_item(second.item_id, reason="unknown account", by="alice") for _ in range(2)]
        state = PayoutBatch.objects.get().state
        returned = [commands.return_item(first.item_id, reason="closed", by="alice") for _ in range(2)]

        assert (settled, failed, returned) == ([True, False],) * 3
        assert state == "closed"
        assert [balance(device) for device in devices] == [{"available": EARNED}] * 2
        assert check_books().ok
        assert draft("what came back") == 2

    def test_contradictions_are_refused(self, devices: list[Device]) -> None:
        batch_id = draft()
        item = PayoutItem.objects.filter(batch_id=batch_id).first()
        assert item is not None
        refusals: list[MarketError] = []
        acts: list[Callable[[], object]] = [
            lambda: commands.settle_item(item.item_id, reference="", by="alice"),
            lambda: commands.fail_item("payout-000009-0001", reason="x", by="alice"),
        ]
        for act in acts:
            with pytest.raises(MarketError) as refused:
                act()
            refusals.append(refused.value)
        commands.approve_payout(batch_id, by="bob", reason="checked")
        commands.send_payout(batch_id, Bank(), **WHY)
        commands.fail_item(item.item_id, reason="x", by="alice")

        with pytest.raises(WrongState, match="adjustment"):
            commands.settle_item(item.item_id, reference="", by="alice")
        assert [type(refusal) for refusal in refusals] == [WrongState, UnknownPayout]
        with pytest.raises(UnknownPayout):
            commands.approve_payout(99, by="bob", reason="x")


@pytest.mark.usefixtures("real_database", "_market")
class TestRaces:
    @pytest.fixture
    def crowd(self) -> list[Device]:
        found = [payable_device(f"device {number}", layer=number) for number in range(6)]
        commands.release_earnings(later(600))
        return found

    def test_drafts_that_race_take_every_balance_once(self, crowd: list[Device]) -> None:
        done: list[int] = []

        def race(number: int) -> None:
            with contextlib.suppress(NothingToPay):
                done.append(draft(f"key {number % 4}"))

        in_threads(8, race)

        assert len(set(done)) == PayoutBatch.objects.count() == 1
        assert [balance(device) for device in crowd] == [{"in_transit": EARNED}] * len(crowd)
        assert check_books().ok

    def test_approval_cancelling_and_sending_that_race_end_in_one_story(self, crowd: list[Device]) -> None:
        bank, batch_id = Bank(), draft()
        steps: list[Callable[[], object]] = [
            lambda: commands.approve_payout(batch_id, by="bob", reason="checked"),
            lambda: commands.send_payout(batch_id, bank, **WHY),
            lambda: commands.cancel_payout(batch_id, **WHY),
        ]

        def race(number: int) -> None:
            for _ in range(4):
                with contextlib.suppress(WrongState):
                    steps[number % 3]()

        in_threads(6, race)

        state = PayoutBatch.objects.get().state
        assert (state, bool(bank.paid)) in {("sent", True), ("cancelled", False), ("approved", False)}
        assert check_books().ok

    def test_an_item_that_settles_and_fails_at_once_does_one_of_both(self, crowd: list[Device]) -> None:
        items = sent(Bank())
        ends: list[str] = []

        def race(number: int) -> None:
            for item in items:
                try:
                    if number % 2 and commands.settle_item(item.item_id, reference="b", by="alice"):
                        ends.append(item.item_id)
                    if not number % 2 and commands.fail_item(item.item_id, reason="x", by="alice"):
                        ends.append(item.item_id)
                except WrongState:
                    pass

        in_threads(6, race)

        assert sorted(ends) == [item.item_id for item in items]
        assert PayoutBatch.objects.get().state == "closed"
        totals = [sum(queries.balances(device.node_id).values()) for device in crowd]
        assert totals == [EARNED] * len(crowd)
        assert check_books().ok

    def test_who_waits_too_long_for_the_lock_is_told_and_has_done_nothing(
        self, crowd: list[Device], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(store, "LOCK_TIMEOUT_SECONDS", 0.2)
        before = store.last_position()
        refusals: list[Busy] = []

        def wait(_number: int) -> None:
            with pytest.raises(Busy) as refused:
                draft()
            refusals.append(refused.value)

        with store.writing():
            in_threads(2, wait, timeout_seconds=20.0)

        assert len(refusals) == 2
        assert store.last_position() == before
        assert draft() == 1
