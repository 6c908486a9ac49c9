"""What a payout pays beside the last one: sums per account, and what deserves a second look."""

from frontend.payouts.differences import Difference, differences, totals

OWNERS = {"n1": "carol", "n2": "carol", "n3": "dan"}


def test_devices_of_one_account_are_one_line() -> None:
    found = differences({"n1": 10, "n2": 5, "n3": 7}, {}, OWNERS, {"carol": "Carol"})

    assert [(one.owner_id, one.devices, one.now, one.before) for one in found] == [
        ("carol", 2, 15, None),
        ("dan", 1, 7, None),
    ]
    assert found[0].name == "Carol"
    assert totals(found) == (22, 0)


def test_who_is_not_paid_this_time_is_in_the_list() -> None:
    (gone,) = differences({}, {"n3": 7}, OWNERS, {})

    assert (gone.kind, gone.now, gone.before, gone.change) == ("gone", 0, 7, -7)
    assert gone.is_remarkable


def test_three_times_more_or_less_is_remarkable() -> None:
    kinds = [
        Difference("x", "", 1, now, before).is_remarkable for now, before in ((30, 10), (29, 10), (4, 10), (3, 10))
    ]

    assert kinds == [True, False, False, True]


def test_a_device_without_account_stands_for_itself() -> None:
    (alone,) = differences({"n9": 3}, {"n9": 3}, OWNERS, {})

    assert (alone.owner_id, alone.kind, alone.is_remarkable) == ("n9", "same", False)
