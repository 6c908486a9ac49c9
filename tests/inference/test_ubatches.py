import numpy as np
import pytest

from inference.ubatches import passes


def split(sequences: list[int], most_rows: int = 512) -> list[list[int]]:
    return [rows.tolist() for rows in passes(np.array(sequences, np.int32), most_rows)]


def test_one_token_of_every_sequence_is_one_pass() -> None:
    assert split([0, 1, 2, 3]) == [[0, 1, 2, 3]]
    assert split([5]) == [[0]]


def test_sequences_of_unequal_lengths_take_a_pass_for_what_they_share_and_one_for_each_rest() -> None:
    assert split([0, 0, 0, 1, 1, 2, 2, 2]) == [[0, 1, 3, 4, 5, 6], [2], [7]]


def test_a_gap_between_the_numbers_ends_a_pass() -> None:
    assert split([0, 2, 3]) == [[0], [1, 2]]


def test_rows_of_one_sequence_stay_together_in_a_pass() -> None:
    assert split([0, 1, 0, 1]) == [[0, 2, 1, 3]]


def test_a_long_prompt_is_cut_at_the_limit() -> None:
    assert split([0] * 5, most_rows=2) == [[0, 1], [2, 3], [4]]
    assert split([0, 0, 0, 1, 1, 1], most_rows=4) == [[0, 1, 3, 4], [2, 5]]


@pytest.mark.parametrize("seed", range(20))
def test_every_row_is_in_exactly_one_pass(seed: int) -> None:
    dice = np.random.default_rng(seed)
    sequences = dice.integers(0, 6, dice.integers(1, 60)).astype(np.int32)

    found = list(passes(sequences, 16))

    assert sorted(np.concatenate(found).tolist()) == list(range(len(sequences)))
    assert all(len(rows) <= 16 for rows in found)
