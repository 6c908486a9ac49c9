"""What to do about claims."""

from dataclasses import replace

import pytest

from inference.worker.claim_plan import Plan, is_needed_elsewhere, plan_claims
from inference.worker.market_client import Claim, Demand, OfferedRange
from tests.inference.worker.builders import a_claim

OTHER_BUILD = "cd" * 16


def claims_of(*numbers: int, size_bytes: int = 100) -> list[Claim]:
    return [a_claim(claim_id=number, layer=number, size_bytes=size_bytes) for number in numbers]


def test_what_is_claimed_and_not_held_is_fetched() -> None:
    first, second = claims_of(1, 2)

    plan = plan_claims([first], [first, second], 1000)

    assert plan == Plan(drop=(), give_back=(), fetch=(second,), free_bytes=800)


def test_what_is_held_and_not_claimed_any_more_is_dropped() -> None:
    first, second = claims_of(1, 2)

    plan = plan_claims([first, second], [second], 1000)

    assert plan == Plan(drop=(first,), give_back=(), fetch=(), free_bytes=900)


def test_a_claim_with_a_new_fence_is_another_claim() -> None:
    old, new = a_claim(fence=2, size_bytes=100), a_claim(fence=3, size_bytes=100)

    plan = plan_claims([old], [new], 1000)

    assert (plan.drop, plan.fetch) == ((old,), (new,))


def test_a_new_price_or_address_is_no_new_claim() -> None:
    held, same = a_claim(), a_claim(rate_microcredits_per_hour=5, slice_url="/elsewhere")

    plan = plan_claims([held], [same], 1 << 20)

    assert (plan.drop, plan.fetch) == ((), ())


def test_claims_above_the_budget_are_given_back_the_newest_first() -> None:
    first, second, third = claims_of(1, 2, 3)

    plan = plan_claims([], [third, first, second], 250)

    assert plan == Plan(drop=(), give_back=(third,), fetch=(first, second), free_bytes=50)


def test_what_is_served_is_kept_before_what_is_not() -> None:
    first, second = claims_of(1, 2)

    plan = plan_claims([second], [first, second], 100)

    assert plan == Plan(drop=(), give_back=(first,), fetch=(), free_bytes=0)


def test_a_smaller_budget_lets_go_of_what_is_served() -> None:
    (claim,) = claims_of(1)

    plan = plan_claims([claim], [claim], 50)

    assert plan == Plan(drop=(claim,), give_back=(claim,), fetch=(), free_bytes=50)


def test_slices_of_one_build_are_held_at_a_time() -> None:
    held, foreign = a_claim(claim_id=1, size_bytes=100), a_claim(claim_id=2, build=OTHER_BUILD, size_bytes=900)

    plan = plan_claims([held], [held, foreign], 10_000)

    assert plan == Plan(drop=(), give_back=(foreign,), fetch=(), free_bytes=9_900)


def test_the_build_changes_when_nothing_of_the_old_one_is_left() -> None:
    held, new = a_claim(claim_id=1, size_bytes=100), a_claim(claim_id=2, build=OTHER_BUILD, size_bytes=900)

    plan = plan_claims([held], [new], 10_000)

    assert plan == Plan(drop=(held,), give_back=(), fetch=(new,), free_bytes=9_100)


def test_of_several_builds_the_one_with_most_claimed_bytes_wins() -> None:
    small, large = a_claim(claim_id=1, size_bytes=100), a_claim(claim_id=2, build=OTHER_BUILD, size_bytes=900)

    plan = plan_claims([], [small, large], 10_000)

    assert (plan.fetch, plan.give_back) == ((large,), (small,))


def test_without_claims_there_is_nothing_to_do() -> None:
    assert plan_claims([], [], 10) == Plan((), (), (), 10)


def offered(*replicas: int | None) -> Demand:
    return Demand(tuple(OfferedRange("ab" * 16, 0, 4, 8, 100, 7, count) for count in replicas), 30.0)


@pytest.mark.parametrize(
    ("own", "others", "needed"),
    [
        ([2], [0], True),
        ([3], [1, 0], True),
        ([1], [0], False),  # nobody else holds it
        ([2], [1], False),  # nothing is missing
        ([2, 1], [0], False),
        ([None], [0], False),  # a server of the version before says nothing
        ([2], [None], False),
        ([2], [], False),
        ([], [0], False),
    ],
)
def test_a_stage_that_is_spare_is_needed_where_units_are_held_by_nobody(
    own: list[int | None], others: list[int | None], needed: bool
) -> None:
    held = [replace(a_claim(claim_id=number), replicas=count) for number, count in enumerate(own)]

    assert is_needed_elsewhere(held, offered(*others)) is needed
