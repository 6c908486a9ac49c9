"""frontend/heat_map.py: levels, cells for small models, bars for big ones, words for every layer."""

from itertools import pairwise

import numpy as np

from frontend.heat_map import FEW, LEGEND, MANY, MOST_BARS, NOBODY, ONE, PENDING, TWO, heat_map, level_of


def table(*rows: list[int]) -> "np.ndarray[tuple[int, int], np.dtype[np.uint16]]":
    return np.array(rows, np.uint16)


def test_levels_tell_replicas_and_claims_apart() -> None:
    live = table([0, 0, 1, 2, 3, 4, 5, 60_000])
    claimed = table([0, 1, 1, 2, 4, 4, 9, 60_000])

    assert level_of(live, claimed).tolist() == [[NOBODY, PENDING, ONE, TWO, FEW, FEW, MANY, MANY]]
    assert [level for level, _ in LEGEND] == [NOBODY, PENDING, ONE, TWO, FEW, MANY]


def test_a_small_model_has_a_cell_per_expert_with_words() -> None:
    found = heat_map((3, 7), table([1, 1, 0], [0, 2, 2]), table([1, 1, 1], [0, 2, 2]))

    assert [(bar.y, bar.first, bar.level) for bar in found.bars] == [
        (0, 0, ONE), (0, 1, ONE), (0, 2, PENDING), (1, 0, NOBODY), (1, 1, TWO), (1, 2, TWO),
    ]  # fmt: skip
    assert [bar.title for bar in found.bars[1:5]] == [
        "layer 3, expert 1: 1 replica",
        "layer 3, expert 2: claimed",
        "layer 7, expert 0: 0 replicas",
        "layer 7, expert 1: 2 replicas",
    ]
    assert (found.rows, found.experts, found.held, found.offered, found.percent) == (2, 3, 4, 6, 66)


def test_layers_are_told_in_numbers() -> None:
    found = heat_map((3, 7), table([1, 5, 0], [2, 2, 2]), table([1, 5, 0], [2, 2, 2]))

    assert [(line.layer, line.held, line.experts, line.least, line.most) for line in found.layers] == [
        (3, 2, 3, 0, 5), (7, 3, 3, 2, 2),
    ]  # fmt: skip


def test_neighbours_of_a_big_model_are_one_bar() -> None:
    live = np.zeros((48, 256), np.uint16)
    live[0, 10:20] = 1

    found = heat_map(range(48), live, live)

    assert len(found.bars) == 50
    assert [(bar.first, bar.last, bar.level) for bar in found.bars[:3]] == [
        (0, 10, NOBODY),
        (10, 20, ONE),
        (20, 256, NOBODY),
    ]
    assert found.bars[1].title == "layer 0, experts 10 to 19: 1 replica"


def test_the_page_stays_small_however_ragged_the_coverage_is() -> None:
    live = np.random.default_rng(5).integers(0, 6, (48, 256)).astype(np.uint16)

    found = heat_map(range(48), live, live)

    assert len(found.bars) <= MOST_BARS
    for y in range(48):
        row = [bar for bar in found.bars if bar.y == y]
        assert row[0].first == 0
        assert row[-1].last == 256
        assert all(left.last == right.first for left, right in pairwise(row))
    # A drawn unit promises no more than its least covered expert.
    for bar in found.bars:
        assert level_of(live, live)[bar.y, bar.first : bar.last].min() >= bar.level


def test_rows_are_neither_thin_nor_thick() -> None:
    assert heat_map((0,), table([1]), table([1])).height == 22
    many = np.zeros((200, 4), np.uint16)
    assert heat_map(range(200), many, many).height == 1600


def test_percent_says_all_only_when_all_are_held() -> None:
    live = np.ones((2, 200), np.uint16)
    live[1, 7] = 0

    assert heat_map((0, 1), live, live).percent == 99
