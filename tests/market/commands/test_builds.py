"""market/commands/builds.py."""

from dataclasses import replace

import pytest

from market import commands, queries, replay, store
from market.builds import BuildDescription
from market.errors import BadRequest, UnknownBuild
from market.policy import Policy
from tests.builders import FINGERPRINT, MORNING, claimed, demo_build, later, registered, verified

pytestmark = pytest.mark.django_db
OTHER = "f" * 32


def test_a_published_build_is_known_with_all_its_layers() -> None:
    build = replace(demo_build(), layers=(1, 2, 5, 7), expert_bytes=(1, 2, 3, 4), expert_types=(("Q4_K", "Q6_K"),) * 4)

    assert commands.publish_build(build, now=MORNING)

    assert queries.build(FINGERPRINT) == build
    assert queries.builds() == [build]
    assert queries.coverage(FINGERPRINT).shape == (4, 32)


def test_publishing_again_changes_nothing_even_under_a_new_name() -> None:
    commands.publish_build(demo_build())

    assert not commands.publish_build(replace(demo_build(), name="renamed"))

    assert store.last_position() == 1
    assert queries.build(FINGERPRINT).name == "demo"


def test_a_fingerprint_cannot_mean_two_things() -> None:
    commands.publish_build(demo_build())

    with pytest.raises(BadRequest, match="published before"):
        commands.publish_build(demo_build(layers=4))


@pytest.mark.parametrize(
    "build",
    [
        demo_build("short"),
        demo_build(FINGERPRINT.upper()),
        demo_build(layers=0),
        demo_build(experts=0),
        demo_build(expert_bytes=0),
        replace(demo_build(), layers=(1, 0, 2, 3, 4, 5, 6, 7)),
        replace(demo_build(), layers=(0, 0, 2, 3, 4, 5, 6, 7)),
        replace(demo_build(), layers=(0, 1, 2, 3, 4, 5, 6, 70_000)),
        replace(demo_build(), expert_bytes=(1,)),
        replace(demo_build(), experts_used=33),
    ],
)
def test_a_build_that_makes_no_sense_is_refused(build: BuildDescription) -> None:
    with pytest.raises(BadRequest):
        commands.publish_build(build)

    assert store.last_position() == 0


def test_nobody_knows_a_build_that_was_never_published() -> None:
    with pytest.raises(UnknownBuild):
        queries.coverage(OTHER)


def test_a_policy_holds_from_its_event_on() -> None:
    assert queries.policy() == Policy()

    commands.change_policy(Policy(7, 8, 2, 3), by="operator", reason="tested", now=MORNING)

    assert queries.policy() == Policy(7, 8, 2, 3)


@pytest.mark.parametrize("policy", [Policy(-1), Policy(1, 0), Policy(1, 1, 0), Policy(1, 1, 3, 2), Policy(1, 1, 1, 65)])
def test_a_policy_that_contradicts_itself_is_refused(policy: Policy) -> None:
    with pytest.raises(BadRequest):
        commands.change_policy(policy, by="operator", reason="tested")


def test_a_retired_build_is_not_on_offer_and_its_claims_end_with_the_timer() -> None:
    commands.publish_build(demo_build(), now=MORNING)
    device = registered()
    verified(claimed(device))

    assert commands.retire_build(FINGERPRINT, by="olga", reason="replaced", now=later(60))
    ended = commands.end_retired(later(65))

    assert (ended, queries.builds()) == (1, [])
    assert queries.node_claims(device.node_id) == []
    assert queries.coverage(FINGERPRINT).max() == 0
    with pytest.raises(UnknownBuild, match="retired"):
        commands.claim_ranges(device.node_id, [commands.RangeWish(0, 0, 4)], FINGERPRINT, now=later(70))


def test_a_backbone_that_starts_again_does_not_bring_a_retired_build_back() -> None:
    commands.publish_build(demo_build(), now=MORNING)
    commands.retire_build(FINGERPRINT, by="olga", reason="replaced", now=later(60))

    assert not commands.publish_build(demo_build(), now=later(120))

    assert queries.builds() == []


def test_a_restored_build_is_on_offer_again_and_history_replays() -> None:
    commands.publish_build(demo_build(), now=MORNING)
    commands.retire_build(FINGERPRINT, by="olga", reason="replaced", now=later(60))

    assert not commands.retire_build(FINGERPRINT, by="olga", reason="again", now=later(61))
    assert commands.restore_build(FINGERPRINT, by="olga", reason="it was better", now=later(90))
    assert not commands.restore_build(FINGERPRINT, by="olga", reason="again", now=later(91))

    assert queries.builds() == [demo_build()]
    assert replay.check().ok


def test_retiring_asks_for_a_reason() -> None:
    commands.publish_build(demo_build(), now=MORNING)

    with pytest.raises(BadRequest, match="reason"):
        commands.retire_build(FINGERPRINT, by="olga", reason=" ")
