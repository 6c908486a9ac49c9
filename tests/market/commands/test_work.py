"""market/commands/work.py: what a backbone reports is paid once, by FLOPs, up to the cap."""

from datetime import datetime, timedelta

import numpy as np
import pytest

from market import commands, queries, store
from market.errors import BadRequest, KeyReused, RangeOutside, UnknownBuild, UnknownNode
from market.events import WorkCredited
from market.models import Claim, Posting
from market.policy import Policy
from tests.builders import FINGERPRINT, MORNING, Device, claimed, demo_build, later, registered
from tests.market.databases import in_threads

# Demo rows are 6 x 256 x 256 operations, paid with 10^7 microcredits per 10^12.
ROW_PRICE = 393_216 * 10**7 / 10**12


def credit(
    bob: Device, rows: list[tuple[int, int, int]], *, key: str = "k", start: float = 0, end: float = 60
) -> commands.CreditResult:
    """rows: (claim, layer, rows)."""
    return commands.credit_work(key, FINGERPRINT, bob.node_id, later(start), later(end), rows, now=later(end + 1))


def last_credit() -> WorkCredited:
    event = [recorded.event for recorded in store.history()][-1]
    assert isinstance(event, WorkCredited)
    return event


@pytest.mark.django_db
class TestCredit:
    @pytest.fixture
    def bob(self) -> Device:
        commands.publish_build(demo_build(), now=MORNING)
        return registered()

    def test_rows_cost_their_operations_and_the_postings_balance(self, bob: Device) -> None:
        claimed(bob, layer=0)

        result = credit(bob, [(1, 0, 1000)])

        assert result.amount_microcredits == int(1000 * ROW_PRICE) == 3932
        assert queries.balances(bob.node_id) == {"pending": 3932}
        assert queries.treasury_microcredits() == -3932
        assert sum(Posting.objects.values_list("amount_microcredits", flat=True)) == 0

    def test_the_same_key_is_paid_once_and_answers_the_same(self, bob: Device) -> None:
        claimed(bob, layer=0)

        first = credit(bob, [(1, 0, 1000)])
        again = credit(bob, [(1, 0, 1000)])
        other = credit(bob, [(1, 0, 1000)], key="another window")

        assert (again.event_id, again.amount_microcredits) == (first.event_id, first.amount_microcredits)
        assert (first.repeated, again.repeated) == (False, True)
        assert other.event_id != first.event_id
        assert queries.balances(bob.node_id) == {"pending": 2 * 3932}

    def test_paid_with_nothing_is_another_answer_than_paid_already(self, bob: Device) -> None:
        first = credit(bob, [(1, 0, 1000)])
        again = credit(bob, [(1, 0, 1000)])

        assert (first.amount_microcredits, first.repeated) == (0, False)
        assert (again.amount_microcredits, again.repeated) == (0, True)
        assert queries.balances(bob.node_id) == {}

    def test_every_row_is_booked_also_those_that_no_claim_covered(self, bob: Device) -> None:
        claimed(bob, layer=0)

        credit(bob, [(1, 0, 10), (9, 3, 5), (1, 0, 7), (1, 5, 0)])

        assert [(row.layer, row.rows) for row in queries.credited_rows(FINGERPRINT)] == [(0, 17), (3, 5)]
        assert [(line.layer, line.rows, line.claim_id) for line in last_credit().work] == [(0, 17, 1), (3, 5, None)]

    def test_work_before_the_end_of_a_claim_is_paid_after_it(self, bob: Device) -> None:
        claim = claimed(bob, layer=0)
        commands.release_claim(bob.node_id, claim.claim_id, now=later(50))

        during = credit(bob, [(1, 0, 1000)], key="during", start=0, end=60)
        afterwards = credit(bob, [(1, 0, 1000)], key="after", start=60, end=120)

        assert during.amount_microcredits == 3932
        assert afterwards.amount_microcredits == 0

    def test_work_before_a_claim_is_not_paid(self, bob: Device) -> None:
        claimed(bob, layer=0, now=later(60))

        assert credit(bob, [(1, 0, 1000)], start=0, end=60).amount_microcredits == 0

    def test_two_claims_in_a_layer_are_paid_for_what_each_did(self, bob: Device) -> None:
        short, long = claimed(bob, layer=0, first=10, last=11), claimed(bob, layer=0, first=0, last=3)

        credit(bob, [(short.claim_id, 0, 90), (long.claim_id, 0, 11)])

        assert [(line.claim_id, line.rows) for line in last_credit().work] == [(1, 90), (2, 11)]
        assert last_credit().counted_by_claim

    def test_rows_of_a_claim_that_is_anothers_or_in_another_layer_earn_nothing(self, bob: Device) -> None:
        other = claimed(registered("Alice"), layer=0)
        own = claimed(bob, layer=1)

        result = credit(bob, [(other.claim_id, 0, 1000), (own.claim_id, 0, 1000), (own.claim_id, 1, 1000)])

        assert [(line.claim_id, line.amount_microcredits > 0) for line in last_credit().work] == [
            (None, False),
            (None, False),
            (own.claim_id, True),
        ]
        assert result.amount_microcredits == 3932

    def test_work_that_arrives_after_a_quarantine_earns_nothing(self, bob: Device) -> None:
        claimed(bob, layer=0)
        commands.quarantine_node(bob.node_id, reason="wrong answers", by="audit", now=later(59))

        result = credit(bob, [(1, 0, 1000)])

        assert result.amount_microcredits == 0
        assert [(line.claim_id, line.rows) for line in last_credit().work] == [(1, 1000)]

    def test_a_claim_earns_no_more_per_hour_than_its_cap(self, bob: Device) -> None:
        commands.change_policy(Policy(budget_microcredits_per_hour=256_000), by="operator", reason="tested")
        cap = claimed(bob, layer=0).cap_microcredits_per_hour

        amounts = [
            credit(bob, [(1, 0, 1000)], key=f"window {end}", start=end - 60, end=end).amount_microcredits
            for end in (60, 120, 3600, 3660)
        ]

        assert 3932 < cap < 2 * 3932
        assert amounts == [3932, cap - 3932, 0, 3932]

    def test_a_claim_at_its_cap_says_so_until_the_hour_is_over(
        self, bob: Device, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        claimed(bob, layer=0)
        credit(bob, [(1, 0, 10**9)])

        def at(moment: datetime) -> bool:
            monkeypatch.setattr("django.utils.timezone.now", lambda: moment)
            return queries.node_claims(bob.node_id)[0].cap_reached

        assert at(later(60))
        assert at(later(3599))
        assert not at(later(3600))

    def test_a_key_belongs_to_one_node(self, bob: Device) -> None:
        credit(bob, [(1, 0, 1)])
        mallory = registered("Mallory")

        with pytest.raises(KeyReused):
            credit(mallory, [(1, 0, 1)])

    @pytest.mark.parametrize("rows", [[], [(1, 0, 0)], [(1, 0, -1)], [(1, 0, 1 << 41)]])
    def test_it_refuses_impossible_rows(self, bob: Device, rows: list[tuple[int, int, int]]) -> None:
        with pytest.raises(BadRequest):
            credit(bob, rows)

    def test_it_refuses_impossible_keys_windows_layers_and_nodes(self, bob: Device) -> None:
        with pytest.raises(BadRequest):
            credit(bob, [(1, 0, 1)], key="")
        with pytest.raises(BadRequest):
            credit(bob, [(1, 0, 1)], key="k" * 201)
        with pytest.raises(BadRequest):
            credit(bob, [(1, 0, 1)], start=60, end=60)
        with pytest.raises(BadRequest):
            credit(bob, [(1, 0, 1)], start=0, end=90_000)
        naive = MORNING.replace(tzinfo=None)
        with pytest.raises(BadRequest, match="time zone"):
            commands.credit_work("k", FINGERPRINT, bob.node_id, naive, naive + timedelta(seconds=60), [(1, 0, 1)])
        with pytest.raises(RangeOutside):
            credit(bob, [(1, 8, 1)])
        with pytest.raises(UnknownNode):
            credit(Device("nobody", ""), [(1, 0, 1)])
        with pytest.raises(UnknownBuild):
            commands.credit_work("k", "f" * 32, bob.node_id, MORNING, later(60), [(1, 0, 1)])


@pytest.mark.usefixtures("real_database")
def test_one_window_that_many_senders_retry_at_once_is_paid_once() -> None:
    commands.publish_build(demo_build(), now=MORNING)
    bob = registered()
    claimed(bob, layer=0)
    results: list[commands.CreditResult] = []

    in_threads(8, lambda _number: results.append(credit(bob, [(1, 0, 1000)])))

    assert {(result.event_id, result.amount_microcredits) for result in results} == {(results[0].event_id, 3932)}
    assert sorted(result.repeated for result in results) == [False] + [True] * 7
    assert queries.balances(bob.node_id) == {"pending": 3932}


@pytest.mark.usefixtures("real_database")
def test_many_windows_at_once_add_up() -> None:
    commands.publish_build(demo_build(), now=MORNING)
    devices = [registered(f"device {number}") for number in range(4)]
    for number, device in enumerate(devices):
        claimed(device, layer=number)

    def work(number: int) -> None:
        for window in range(5):
            credit(devices[number % 4], [(number % 4 + 1, number % 4, 100)], key=f"{number} {window}")

    in_threads(8, work)

    assert {device.node_id: queries.balances(device.node_id)["pending"] for device in devices} == {
        device.node_id: 10 * 393 for device in devices
    }
    assert queries.treasury_microcredits() == -4 * 10 * 393
    assert Claim.objects.filter(earned_microcredits=10 * 393).count() == 4


@pytest.mark.django_db
class TestDemand:
    def test_observed_demand_is_rows_per_hour(self) -> None:
        commands.publish_build(demo_build(layers=2, experts=4))
        counts = np.arange(8).reshape(2, 4)

        commands.observe_demand(FINGERPRINT, counts, MORNING, later(360))

        assert (queries.demand(FINGERPRINT) == counts * 10.0).all()

    def test_before_anything_was_observed_it_is_zero(self) -> None:
        commands.publish_build(demo_build(layers=2, experts=4))

        assert (queries.demand(FINGERPRINT) == np.zeros((2, 4))).all()

    def test_a_key_makes_a_report_count_once(self) -> None:
        commands.publish_build(demo_build(layers=2, experts=4))
        counts = np.ones((2, 4), int)

        first = commands.observe_demand(FINGERPRINT, counts, MORNING, later(360), key="d")

        assert commands.observe_demand(FINGERPRINT, counts * 9, MORNING, later(360), key="d") == first
        assert queries.demand(FINGERPRINT).max() == 10

    def test_it_refuses_counts_of_another_shape(self) -> None:
        commands.publish_build(demo_build(layers=2, experts=4))

        with pytest.raises(BadRequest, match="shape"):
            commands.observe_demand(FINGERPRINT, np.ones((4, 2), int), MORNING, later(60))
        with pytest.raises(BadRequest):
            commands.observe_demand(FINGERPRINT, np.ones((2, 4)), MORNING, later(60))  # type: ignore[arg-type]
        with pytest.raises(UnknownBuild):
            commands.observe_demand("f" * 32, np.ones((2, 4), int), MORNING, later(60))

    def test_a_hot_expert_is_offered_a_better_price(self) -> None:
        commands.publish_build(demo_build(layers=1, experts=4))
        commands.observe_demand(FINGERPRINT, np.array([[0, 0, 100, 0]]), MORNING, later(60))

        cold, hot = claimed(registered("Alice"), 0, 0, 1), claimed(registered("Bob"), 0, 2, 3)

        assert hot.cap_microcredits_per_hour > cold.cap_microcredits_per_hour
