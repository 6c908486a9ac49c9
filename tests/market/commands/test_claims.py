"""market/commands/claims.py: grants, races for real, expiry."""

import time
from collections import Counter
from collections.abc import Collection
from datetime import timedelta

import numpy as np
import pytest
from pytest_django import Settings

from market import commands, presence, queries, replay, snapshots, store
from market.commands.claims import OPEN_CLAIMS_LIMIT
from market.errors import (
    AlreadyHeld,
    BadRequest,
    BudgetExhausted,
    BudgetTooSmall,
    Conflict,
    FullyCovered,
    MarketError,
    NoBuilds,
    NoWork,
    OverSubscribed,
    RangeOutside,
    TypesUnsupported,
    UnknownBuild,
    UnknownClaim,
    UnknownNode,
)
from market.models import Claim, Event
from market.policy import Policy
from tests.builders import (
    DEMO_EXPERT_BYTES,
    FINGERPRINT,
    MORNING,
    claimed,
    demo_build,
    later,
    registered,
    verified,
)
from tests.market.databases import in_threads

OTHER = "f" * 32


def wish(layer: int, first: int, last: int) -> list[commands.RangeWish]:
    return [commands.RangeWish(layer, first, last)]


@pytest.mark.django_db
class TestGrant:
    @pytest.fixture(autouse=True)
    def _published(self) -> None:
        commands.publish_build(demo_build(), now=MORNING)

    def test_a_claim_covers_its_range_and_carries_rate_cap_fence_and_lease(self, settings: Settings) -> None:
        bob = registered()

        claim = claimed(bob, layer=3, first=4, last=12)

        assert (claim.layer, claim.first, claim.last, claim.state) == (3, 4, 12, "pending")
        assert claim.size_bytes == 8 * DEMO_EXPERT_BYTES
        assert claim.fence == 1
        assert claim.rate_microcredits_per_teraflop == Policy.price_ceiling_microcredits_per_teraflop
        assert claim.cap_microcredits_per_hour > 0
        since = presence.recording_since(MORNING)
        assert claim.expires_at == since + timedelta(seconds=settings.LEASE_SECONDS)
        coverage = queries.coverage(FINGERPRINT)
        assert coverage[3].tolist() == [0] * 4 + [1] * 8 + [0] * 20
        assert coverage.sum() == 8
        assert queries.has_claimed(bob.node_id, FINGERPRINT, 3, 4, 12)
        assert not queries.has_claimed(bob.node_id, FINGERPRINT, 3, 4, 11)

    def test_fences_only_grow_within_a_layer(self) -> None:
        fences = []
        for name in ("Alice", "Bob", "Carol"):
            claim = claimed(registered(name), layer=2)
            fences.append(claim.fence)
            commands.release_claim(claim.node_id, claim.claim_id)

        assert fences == sorted(set(fences))

    def test_the_next_claim_of_a_range_earns_less(self) -> None:
        first, second = claimed(registered("Alice")), claimed(registered("Bob"))

        assert second.cap_microcredits_per_hour < first.cap_microcredits_per_hour

    def test_several_ranges_are_granted_together_or_not_at_all(self) -> None:
        bob = registered()
        ranges = [commands.RangeWish(1, 0, 4), commands.RangeWish(0, 8, 16), commands.RangeWish(1, 4, 8)]

        claims = commands.claim_ranges(bob.node_id, ranges)
        with pytest.raises(RangeOutside):
            commands.claim_ranges(bob.node_id, [commands.RangeWish(2, 0, 1), commands.RangeWish(9, 0, 1)])

        assert [(claim.layer, claim.first, claim.fence) for claim in claims] == [(1, 0, 1), (0, 8, 1), (1, 4, 2)]
        assert queries.coverage(FINGERPRINT).sum() == 16

    @pytest.mark.parametrize(
        ("layer", "first", "last"), [(8, 0, 1), (-1, 0, 1), (0, 0, 0), (0, 5, 4), (0, -1, 4), (0, 0, 33), (0, 32, 33)]
    )
    def test_a_range_outside_is_refused(self, layer: int, first: int, last: int) -> None:
        bob = registered()

        with pytest.raises(RangeOutside):
            commands.claim_ranges(bob.node_id, wish(layer, first, last))

    def test_a_run_longer_than_64_is_refused(self) -> None:
        commands.publish_build(demo_build(OTHER, layers=1, experts=128))
        bob = registered()

        with pytest.raises(RangeOutside, match="64"):
            commands.claim_ranges(bob.node_id, wish(0, 0, 65), OTHER)

        assert len(commands.claim_ranges(bob.node_id, wish(0, 0, 64), OTHER)) == 1

    def test_a_device_cannot_hold_an_expert_twice(self) -> None:
        bob = registered()
        claimed(bob, 0, 0, 8)

        with pytest.raises(AlreadyHeld):
            claimed(bob, 0, 7, 9)
        with pytest.raises(AlreadyHeld):
            commands.claim_ranges(bob.node_id, [*wish(1, 0, 4), *wish(1, 3, 5)])

    def test_no_expert_gets_more_replicas_than_the_policy_allows(self) -> None:
        commands.change_policy(Policy(maximum_replicas=2), by="operator", reason="tested")
        claimed(registered("Alice"), 0, 0, 8)
        claimed(registered("Bob"), 0, 4, 12)

        with pytest.raises(OverSubscribed):
            claimed(registered("Carol"), 0, 7, 8)

        assert claimed(registered("Carol"), 0, 8, 16).state == "pending"

    def test_all_open_caps_together_never_exceed_the_budget(self) -> None:
        commands.change_policy(Policy(budget_microcredits_per_hour=1000), by="operator", reason="tested")
        refused = 0
        for number in range(12):
            try:
                commands.claim_best(registered(f"device {number}").node_id, 100 * DEMO_EXPERT_BYTES)
            except BudgetExhausted:
                refused += 1
            assert snapshots.reserved_microcredits_per_hour() <= 1000

        assert snapshots.reserved_microcredits_per_hour() == sum(
            Claim.objects.values_list("cap_microcredits_per_hour", flat=True)
        )
        assert refused > 0

    def test_a_budget_of_nothing_buys_nothing(self) -> None:
        commands.change_policy(Policy(budget_microcredits_per_hour=0), by="operator", reason="tested")

        with pytest.raises(BudgetExhausted):
            claimed(registered())

    def test_what_ended_claims_earned_in_this_hour_is_not_spent_again(self) -> None:
        bob = registered()
        claim = claimed(bob)
        credit = commands.credit_work("k", FINGERPRINT, bob.node_id, MORNING, later(60), [(1, 0, 1000)])
        commands.release_claim(bob.node_id, claim.claim_id, now=later(61))

        budget = Policy().budget_microcredits_per_hour
        assert snapshots.purse(later(120)).owed_this_hour == credit.amount_microcredits
        assert snapshots.purse(later(3600)).owed_this_hour == 0
        assert snapshots.remaining_budget(later(120)) == budget

    def test_the_best_for_a_budget_fills_it_with_several_runs(self) -> None:
        claims = commands.claim_best(registered().node_id, 85 * DEMO_EXPERT_BYTES + 1)

        assert [(claim.layer, claim.first, claim.last) for claim in claims] == [(0, 0, 32), (1, 0, 32), (2, 0, 21)]

    def test_three_devices_with_just_enough_memory_cover_everything_once(self) -> None:
        for name, experts in (("Alice", 85), ("Bob", 85), ("Carol", 86)):
            commands.claim_best(registered(name).node_id, experts * DEMO_EXPERT_BYTES)

        assert (queries.coverage(FINGERPRINT) == 1).all()

    def test_reasons_for_getting_nothing_are_told_apart(self) -> None:
        bob = registered()
        with pytest.raises(BudgetTooSmall) as too_small:
            commands.claim_best(bob.node_id, DEMO_EXPERT_BYTES - 1)
        assert too_small.value.minimum_bytes == DEMO_EXPERT_BYTES
        with pytest.raises(TypesUnsupported):
            commands.claim_best(bob.node_id, 10**9, types=frozenset({"Q6_K"}))
        with pytest.raises(UnknownBuild):
            commands.claim_best(bob.node_id, 10**9, OTHER)
        with pytest.raises(UnknownNode):
            commands.claim_best("nobody", 10**9)
        commands.claim_best(bob.node_id, 10**9)
        with pytest.raises(FullyCovered):
            commands.claim_best(bob.node_id, 10**9)

    def test_with_several_builds_a_range_needs_to_name_one_and_the_best_is_found(self) -> None:
        commands.publish_build(demo_build(OTHER, layers=1, experts=32, expert_bytes=DEMO_EXPERT_BYTES // 4))
        bob = registered()

        with pytest.raises(BadRequest, match="build"):
            commands.claim_ranges(bob.node_id, wish(0, 0, 1))
        claims = commands.claim_best(bob.node_id, 16 * DEMO_EXPERT_BYTES)

        assert {claim.build for claim in claims} == {OTHER}

    def test_a_device_holds_a_bounded_number_of_claims(self) -> None:
        bob = registered()
        for layer in range(7):
            commands.claim_ranges(bob.node_id, [commands.RangeWish(layer, n, n + 1) for n in range(32)])
        Claim.objects.filter(layer=0).update(node_id=bob.node_id)
        template = Claim.objects.all()[0]
        for number in range(OPEN_CLAIMS_LIMIT - 7 * 32):
            template.claim_id = 1000 + number
            template.save(force_insert=True)

        with pytest.raises(BadRequest, match="at most"):
            claimed(bob, 7, 0, 1)


@pytest.mark.django_db
def test_without_a_build_there_is_no_work() -> None:
    bob = registered()

    with pytest.raises(NoBuilds):
        commands.claim_best(bob.node_id, 10**9)
    with pytest.raises(NoBuilds):
        commands.claim_ranges(bob.node_id, wish(0, 0, 1))


@pytest.mark.django_db
class TestEnd:
    @pytest.fixture(autouse=True)
    def _published(self) -> None:
        commands.publish_build(demo_build(), now=MORNING)

    def test_a_released_claim_frees_its_range_and_its_money(self) -> None:
        bob = registered()
        claim = verified(claimed(bob))

        commands.release_claim(bob.node_id, claim.claim_id)
        commands.release_claim(bob.node_id, claim.claim_id)

        assert queries.coverage(FINGERPRINT).sum() == 0
        assert snapshots.reserved_microcredits_per_hour() == 0
        assert queries.node_claims(bob.node_id) == []
        assert list(Event.objects.order_by("position").values_list("name", flat=True))[-2:] == [
            "replica-lost",
            "claim-released",
        ]

    def test_nobody_releases_the_claim_of_another(self) -> None:
        claim = claimed(registered())
        mallory = registered("Mallory")

        with pytest.raises(UnknownClaim):
            commands.release_claim(mallory.node_id, claim.claim_id)
        with pytest.raises(UnknownClaim):
            commands.release_claim(mallory.node_id, 999)

        assert queries.coverage(FINGERPRINT).sum() == 8

    def test_a_lease_ends_when_its_device_was_not_seen_for_its_length(self, settings: Settings) -> None:
        settings.LEASE_SECONDS = 120.0
        presence.recording_since(MORNING)
        quiet, lively = registered("Quiet"), registered("Lively")
        lost, kept = verified(claimed(quiet, layer=0)), claimed(lively, layer=1)
        presence.mark_seen(quiet.node_id, later(30))
        presence.mark_seen(lively.node_id, later(100))

        assert commands.expire_leases(later(149)) == []
        assert commands.expire_leases(later(151)) == [lost.claim_id]
        assert commands.expire_leases(later(151)) == []

        assert [claim.claim_id for claim in queries.open_claims(FINGERPRINT)] == [kept.claim_id]
        names = list(Event.objects.order_by("position").values_list("name", flat=True))[-2:]
        assert names == ["replica-lost", "claim-expired"]
        body = Event.objects.latest("position").body
        assert (body["at"], body["last_seen_at"]) == (later(151).isoformat(), later(30).isoformat())

    def test_slices_of_a_silent_device_are_wanted_again_before_its_lease_ends(self, settings: Settings) -> None:
        settings.LEASE_SECONDS = 120.0
        presence.recording_since(MORNING)
        quiet, closed, lively = registered("Quiet"), registered("Closed"), registered("Lively")
        for layer, device in enumerate((quiet, closed, lively)):
            verified(claimed(device, layer=layer))
        presence.mark_seen(closed.node_id, later(45))
        presence.mark_left(closed.node_id, later(46))
        presence.mark_seen(lively.node_id, later(45))

        assert commands.expire_leases(later(50)) == []

        market = snapshots.build_market(FINGERPRINT, None)
        assert market.replicas[:3, 0].tolist() == [1, 1, 1]
        assert market.present[:3, 0].tolist() == [0, 0, 1]
        presence.mark_seen(closed.node_id, later(51))
        commands.expire_leases(later(52))
        assert snapshots.build_market(FINGERPRINT, None).present[:3, 0].tolist() == [0, 1, 1]

    def test_a_device_that_was_never_seen_has_the_lease_of_its_grant(self, settings: Settings) -> None:
        settings.LEASE_SECONDS = 120.0
        presence.recording_since(MORNING)
        claim = claimed(registered(), now=later(50))

        assert commands.expire_leases(later(169)) == []
        assert commands.expire_leases(later(170)) == [claim.claim_id]

    def test_a_cache_that_lost_its_memory_expires_nobody_before_a_whole_lease(self, settings: Settings) -> None:
        settings.LEASE_SECONDS = 120.0
        presence.recording_since(later(1000))
        claim = claimed(registered())

        assert commands.expire_leases(later(1119)) == []
        assert commands.expire_leases(later(1120)) == [claim.claim_id]


@pytest.mark.usefixtures("real_database")
class TestRaces:
    def test_of_many_claimers_no_expert_gets_too_many_replicas(self) -> None:
        commands.publish_build(demo_build(layers=2, experts=8))
        commands.change_policy(Policy(maximum_replicas=2), by="operator", reason="tested")
        devices = [registered(f"device {number}") for number in range(12)]
        outcomes: list[str] = []

        def work(number: int) -> None:
            try:
                claimed(devices[number], 0, 2, 6)
                outcomes.append("granted")
            except OverSubscribed as problem:
                outcomes.append(problem.code)

        in_threads(len(devices), work)

        assert Counter(outcomes) == {"granted": 2, "over_subscribed": 10}
        assert queries.coverage(FINGERPRINT)[0].tolist() == [0, 0, 2, 2, 2, 2, 0, 0]
        assert sorted(Claim.objects.values_list("fence", flat=True)) == [1, 2]

    def test_sixty_four_devices_at_once_neither_over_subscribe_nor_overspend(self) -> None:
        commands.publish_build(demo_build(layers=4, experts=16))
        policy = Policy(budget_microcredits_per_hour=10**6, target_replicas=1, maximum_replicas=2)
        commands.change_policy(policy, by="operator", reason="tested")
        devices = [registered(f"device {number}") for number in range(64)]
        refused: list[str] = []

        def work(number: int) -> None:
            for _ in range(2):
                try:
                    commands.claim_best(devices[number].node_id, 2 * DEMO_EXPERT_BYTES)
                except (NoWork, BudgetExhausted) as problem:
                    refused.append(problem.code)

        in_threads(len(devices), work)

        assert (queries.coverage(FINGERPRINT) == 2).all()
        assert Claim.objects.count() + len(refused) == 128
        assert snapshots.reserved_microcredits_per_hour() <= 10**6
        assert sum(Claim.objects.values_list("cap_microcredits_per_hour", flat=True)) <= 10**6
        assert replay.check().ok

    def test_devices_that_race_for_the_best_spread_over_everything(self) -> None:
        commands.publish_build(demo_build(layers=4, experts=16))
        devices = [registered(f"device {number}") for number in range(16)]

        in_threads(len(devices), lambda number: commands.claim_best(devices[number].node_id, 4 * DEMO_EXPERT_BYTES))

        assert (queries.coverage(FINGERPRINT) == 1).all()

    def test_one_device_that_asks_twice_at_once_gets_no_expert_twice(self) -> None:
        commands.publish_build(demo_build(layers=1, experts=8))
        bob = registered()
        outcomes: list[str] = []

        def work(_number: int) -> None:
            try:
                outcomes.extend("granted" for _ in commands.claim_best(bob.node_id, 8 * DEMO_EXPERT_BYTES))
            except MarketError as problem:
                outcomes.append(problem.code)

        in_threads(4, work)

        assert Counter(outcomes) == {"granted": 1, "fully_covered": 3}

    def test_claims_releases_and_expiries_at_once_leave_true_counts(self) -> None:
        commands.publish_build(demo_build(layers=2, experts=16))
        devices = [registered(f"device {number}") for number in range(8)]
        ends = time.monotonic() + 1.0

        def work(number: int) -> None:
            while time.monotonic() < ends:
                if number == 0:
                    commands.expire_leases(later(60))
                    time.sleep(0.01)
                    continue
                for claim in commands.claim_best(devices[number].node_id, 5 * DEMO_EXPERT_BYTES):
                    commands.release_claim(devices[number].node_id, claim.claim_id)

        in_threads(len(devices), work)

        assert np.count_nonzero(queries.coverage(FINGERPRINT)) == 0
        assert snapshots.reserved_microcredits_per_hour() == 0
        assert store.last_position() > 20


@pytest.mark.django_db
def test_a_conflict_is_decided_again_a_bounded_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    commands.publish_build(demo_build())
    bob, tries = registered(), list[int]()
    heads = store.heads

    def stale(streams: Collection[str]) -> store.Heads:
        tries.append(1)
        old = 1 if len(tries) < limit else 0
        found = heads(streams)
        return store.Heads(found.position, {name: version - old for name, version in found.versions.items()})

    monkeypatch.setattr(store, "heads", stale)

    limit = 5
    assert claimed(bob).state == "pending"
    limit = 100
    tries.clear()
    with pytest.raises(Conflict):
        claimed(bob, layer=1)
