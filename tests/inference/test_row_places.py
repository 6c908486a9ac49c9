"""inference/row_places.py: every row of a token is counted once, in one place, and only while somebody asks."""

import numpy as np

from inference.row_places import RowPlaces, places_of_layer

EXPERTS = np.array([[0, 1], [2, 3], [0, 3]], np.int32)


def test_every_row_is_in_one_place() -> None:
    hot = np.array([True, False, False, True])

    counts = places_of_layer(EXPERTS, [np.array([0]), np.array([0, 1])], hot)

    assert counts.tolist() == [[2, 0, 0], [1, 1, 0], [0, 2, 0]]
    assert counts.sum(axis=1).tolist() == [2, 2, 2]


def test_without_workers_and_hot_experts_all_rows_are_other() -> None:
    assert places_of_layer(EXPERTS, [], None).tolist() == [[0, 0, 2]] * 3


def test_layers_add_up_token_by_token() -> None:
    places = RowPlaces()
    lane = places.lane(1)
    lane.begin()
    for remote in (np.array([0]), np.array([0, 2])):
        open_lane = places.open_lane(1)
        assert open_lane is not None
        open_lane.add(places_of_layer(EXPERTS, [remote], None))

    assert lane.take(3) == [(2, 0, 2), (0, 0, 4), (1, 0, 3)]


def test_nobody_counts_for_a_lane_that_did_not_ask() -> None:
    places = RowPlaces()
    places.lane(1).begin()
    places.lane(1).take(3)

    assert places.open_lane(0) is None
    assert places.open_lane(1) is None


def test_a_batch_that_was_cut_tells_nothing() -> None:
    lane = RowPlaces().lane(0)
    lane.begin()
    lane.add(places_of_layer(EXPERTS, [], None))
    lane.add(places_of_layer(EXPERTS[:1], [], None))

    assert lane.take(3) is None
