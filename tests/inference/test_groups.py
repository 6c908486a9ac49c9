"""inference/groups.py: the parts of a step's pairs are those that each owner would get alone."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from inference.groups import Group, PairsByOwner, split_by_owner
from inference.replica_table import Replica


def replica(number: int) -> Replica:
    return Replica(number, f"node{number}", number, 1, 0, 0, 8, "")


@given(st.integers(1, 12), st.integers(1, 4), st.integers(-3, 5), st.integers(0, 2**32 - 1))
def test_groups_are_those_that_a_split_by_owner_gives(tokens: int, slots: int, owners: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    owner_of_pair = random.integers(-3, max(owners, -2), tokens * slots)
    experts = random.integers(0, 8, tokens * slots).astype(np.int32)
    hidden = random.standard_normal((tokens, 3))

    pairs = PairsByOwner(owner_of_pair, experts, slots)

    gathered = hidden[pairs.remote_rows]
    found = list(pairs.parts())
    expected = list(split_by_owner(owner_of_pair))
    assert [owner for owner, _, _ in found] == [owner for owner, _ in expected]
    for (owner, number, flat), (_, part) in zip(found, expected, strict=True):
        assert_array_equal(flat, part)
        if owner < 0:
            continue
        group, alone = pairs.group(number, replica(owner)), Group(replica(owner), part // slots, part % slots)
        assert_array_equal(group.tokens, alone.tokens)
        assert_array_equal(group.slots, alone.slots)
        assert_array_equal(group.rows[0], alone.rows[0])
        assert_array_equal(group.rows[1], alone.rows[1])
        assert group.pairs is not None
        assert group.row_range is not None
        assert_array_equal(group.pairs[:, 0], alone.rows[1])
        assert_array_equal(group.pairs[:, 1], experts[part])
        assert_array_equal(gathered[slice(*group.row_range)], hidden[alone.rows[0]])
