"""market/kinds.py: builds of experts and builds of stages, and devices that hold the one or the other."""

from dataclasses import replace

import pytest
from django.test import Client

from market import build_list, codec, commands, node_list, queries, replay, store
from market.builds import BuildDescription
from market.errors import BadRequest, NoBuilds, WrongKind
from market.events import BuildPublished, NodeRegistered
from market.offers import offers_for
from market.pricing import build_budgets
from tests.builders import (
    DIGEST,
    FINGERPRINT,
    MORNING,
    STAGES,
    UNIT_BYTES,
    Device,
    claimed,
    demo_build,
    later,
    registered,
    stage_build,
    stage_device,
)
from tests.market.test_api import Caller
from tests.market.test_codec import sample


def view(device: Device) -> queries.NodeView:
    node = queries.node(device.node_id)
    assert node is not None
    return node


@pytest.mark.django_db
class TestOffers:
    @pytest.fixture(autouse=True)
    def _published(self) -> None:
        commands.publish_build(demo_build(), now=MORNING)
        commands.publish_build(stage_build(), now=MORNING)

    def test_a_worker_is_offered_experts_only_and_a_stage_units_only(self) -> None:
        worker, stage = registered(), stage_device()

        for_worker, for_stage = offers_for(view(worker)), offers_for(view(stage))

        assert {offer.build for offer in for_worker.offers} == {FINGERPRINT}
        assert {offer.build for offer in for_stage.offers} == {STAGES}
        assert [on_offer.build.kind for on_offer in for_worker.builds] == ["experts"]
        assert [on_offer.build.kind for on_offer in for_stage.builds] == ["stages"]

    def test_it_refuses_to_price_a_build_of_the_other_kind(self) -> None:
        with pytest.raises(WrongKind, match="offers stages"):
            offers_for(view(registered()), build=STAGES)
        with pytest.raises(WrongKind, match="offers experts"):
            offers_for(view(stage_device()), build=FINGERPRINT)

    def test_a_stage_that_is_offered_nothing_is_told_that_no_build_is_there(self) -> None:
        commands.retire_build(STAGES, by="operator", reason="tested")

        assert isinstance(offers_for(view(stage_device())).reason, NoBuilds)


@pytest.mark.django_db
class TestClaims:
    @pytest.fixture(autouse=True)
    def _published(self) -> None:
        commands.publish_build(demo_build(), now=MORNING)
        commands.publish_build(stage_build(), now=MORNING)

    def test_the_best_for_a_budget_is_of_the_devices_own_kind(self) -> None:
        worker, stage = registered(), stage_device()

        experts = commands.claim_best(worker.node_id, 10**9)
        units = commands.claim_best(stage.node_id, 3 * UNIT_BYTES)

        assert {claim.build for claim in experts} == {FINGERPRINT}
        assert {claim.build for claim in units} == {STAGES}

    def test_a_stage_gets_one_run_of_units_that_fits_its_memory(self) -> None:
        alice, bob = stage_device("Alice"), stage_device("Bob")

        first = commands.claim_best(alice.node_id, 5 * UNIT_BYTES)
        second = commands.claim_best(bob.node_id, 100 * UNIT_BYTES)

        assert [(claim.layer, claim.first, claim.last) for claim in first] == [(0, 0, 5)]
        assert [(claim.layer, claim.first, claim.last) for claim in second] == [(0, 5, 12)]

    def test_a_device_cannot_claim_what_the_other_kind_holds(self) -> None:
        worker, stage = registered(), stage_device()
        wish = [commands.RangeWish(0, 0, 2)]

        with pytest.raises(WrongKind):
            commands.claim_ranges(worker.node_id, wish, STAGES)
        with pytest.raises(WrongKind):
            commands.claim_ranges(stage.node_id, wish, FINGERPRINT)
        with pytest.raises(WrongKind):
            commands.claim_best(worker.node_id, 10**9, STAGES)

    def test_the_only_build_of_a_kind_need_not_be_named(self) -> None:
        worker, stage = claimed(registered()), claimed(stage_device(), 0, 0, 2)

        assert (worker.build, stage.build) == (FINGERPRINT, STAGES)

    def test_stages_add_nothing_to_the_coverage_of_experts(self) -> None:
        before = queries.coverage(FINGERPRINT).sum()

        claimed(stage_device(), 0, 0, 2)

        assert queries.coverage(FINGERPRINT).sum() == before
        assert queries.coverage(STAGES).sum() == 2


@pytest.mark.django_db
def test_stand_by_pay_and_expiry_treat_units_as_they_treat_experts() -> None:
    commands.publish_build(stage_build(), now=MORNING)
    claim = claimed(stage_device(), 0, 0, 4)
    commands.verify_replica(claim.claim_id, claim.fence, DIGEST, "backbone", now=MORNING)

    paid = commands.credit_standby(later(1500))
    expired = commands.expire_leases(later(10**9))

    assert paid > 0
    assert expired == [claim.claim_id]


@pytest.mark.django_db
def test_tokens_through_units_are_credited_by_their_operations() -> None:
    commands.publish_build(stage_build(), now=MORNING)
    device = stage_device()
    claim = claimed(device, 0, 0, 4)

    credit = commands.credit_work("k", STAGES, device.node_id, later(0), later(60), [(claim.claim_id, 0, 4 * 1000)])

    operations = 4 * 1000 * stage_build().flops_per_row
    assert credit.amount_microcredits == operations * claim.rate_microcredits_per_teraflop // 10**12
    assert replay.check().ok


def test_a_build_of_stages_takes_a_quarter_of_what_experts_get_alike() -> None:
    idle = build_budgets([0.0, 0.0], ["experts", "stages"], 1000)
    asked = build_budgets([3e12, 1e12], ["experts", "stages"], 1000)

    assert idle == [800, 200]
    assert asked == [762, 237]


@pytest.mark.django_db
@pytest.mark.parametrize(
    "build",
    [
        stage_build(units=0),
        replace(demo_build(layers=2), kind="stages"),
        replace(demo_build(), kind="layers"),  # type: ignore[arg-type]
    ],
)
def test_stages_that_make_no_sense_are_refused(build: BuildDescription) -> None:
    with pytest.raises(BadRequest):
        commands.publish_build(build)


def test_what_was_stored_before_kinds_means_experts_and_workers() -> None:
    published = codec.decode("build-published", 1, sample("build-published", 1))
    node = codec.decode("node-registered", 1, sample("node-registered", 1))

    assert isinstance(published, BuildPublished)
    assert isinstance(node, NodeRegistered)
    assert (published.build.kind, node.role) == ("experts", "worker")


@pytest.mark.django_db
def test_lists_for_pages_say_kind_and_role() -> None:
    commands.publish_build(demo_build(), now=MORNING)
    commands.publish_build(stage_build(), now=MORNING)
    stage_device("Alice")
    registered("Bob")

    assert [line.kind for line in build_list.build_lines()] == ["experts", "stages"]
    assert {line.name: line.role for line in node_list.node_lines()} == {"Alice": "stage", "Bob": "worker"}


@pytest.mark.usefixtures("real_database")
class TestKindsContract:
    """The same in SQLite and PostgreSQL."""

    def test_kinds_and_roles_survive_the_store_and_a_replay(self) -> None:
        commands.publish_build(demo_build(), now=MORNING)
        commands.publish_build(stage_build(), now=MORNING)
        stage, worker = stage_device("Alice"), registered("Bob")
        commands.claim_best(stage.node_id, 4 * UNIT_BYTES)
        commands.claim_best(worker.node_id, 10**6)

        replay.rebuild()

        assert replay.check().ok
        assert [build.kind for build in (*queries.builds(), *queries.builds("stages"))] == ["experts", "stages"]
        assert (view(stage).role, view(worker).role) == ("stage", "worker")
        assert queries.build(STAGES) == stage_build()

    def test_a_history_of_the_version_before_is_read(self) -> None:
        body = sample("node-registered", 1)
        store.append([codec.decode("node-registered", 1, body)])

        assert next(iter(store.history())).event == codec.decode("node-registered", 1, body)
        assert replay.check().ok


@pytest.mark.django_db
class TestApi:
    @pytest.fixture(autouse=True)
    def _published(self) -> None:
        commands.publish_build(demo_build(), now=MORNING)
        commands.publish_build(stage_build(), now=MORNING)

    def _enrolled(self, client: Client, **more: str) -> Caller:
        body = {"name": "Bob", "kernel_class": "numpy", **more}
        return Caller(client, Caller(client).post("/api/nodes", body).json()["token"])

    def test_a_device_registers_as_a_stage_and_claims_units(self, client: Client) -> None:
        stage = self._enrolled(client, role="stage")

        demand = stage.get("/api/demand").json()
        claims = stage.post("/api/claims", {"best_for_budget_bytes": 3 * UNIT_BYTES}).json()["claims"]

        assert stage.get("/api/me").json()["role"] == "stage"
        assert [build["kind"] for build in demand["builds"]] == ["stages"]
        assert [(claim["build"], claim["layer"], claim["first"], claim["last"]) for claim in claims] == [
            (STAGES, 0, 0, 3)
        ]

    def test_the_heartbeat_tells_a_stage_and_no_worker_who_else_is_there(self, client: Client) -> None:
        alice, bob = self._enrolled(client, role="stage"), self._enrolled(client, role="stage")
        worker = self._enrolled(client)
        for caller, budget in ((alice, 3 * UNIT_BYTES), (bob, 100 * UNIT_BYTES), (worker, 10**6)):
            caller.post("/api/claims", {"best_for_budget_bytes": budget})
        alone = alice.post("/api/heartbeat").json()["claims"][0]["replicas"]
        carol = stage_device("Carol")
        commands.claim_ranges(carol.node_id, [commands.RangeWish(0, 0, 12)])

        assert alone == 1
        assert alice.post("/api/heartbeat").json()["claims"][0]["replicas"] == 2
        assert worker.post("/api/heartbeat").json()["claims"][0]["replicas"] is None

    def test_who_says_no_role_is_a_worker_and_sees_no_stages(self, client: Client) -> None:
        worker = self._enrolled(client)

        demand = worker.get("/api/demand").json()
        refused = worker.get(f"/api/demand?build={STAGES}")

        assert worker.get("/api/me").json()["role"] == "worker"
        assert {found["build"] for found in demand["ranges"]} == {FINGERPRINT}
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "wrong_kind")

    def test_a_role_that_nobody_has_is_refused(self, client: Client) -> None:
        answer = Caller(client).post("/api/nodes", {"name": "Eve", "kernel_class": "numpy", "role": "backbone"})

        assert answer.status_code == 422
