"""inference/kept_prefixes.py: which states are worth their place, and which one goes."""

import numpy as np

from inference.kept_prefixes import LEAST_TOKENS, KeptPrefixes, common_length

LONG = np.arange(LEAST_TOKENS * 3, dtype=np.int32)


def kept(*lengths: int, slots: int = 4) -> KeptPrefixes:
    found = KeptPrefixes(range(10, 10 + slots))
    for length in lengths:
        found.place(LONG[:length])
    return found


def test_the_longest_whole_prefix_is_found() -> None:
    prefixes = kept(40, 60, 90)

    found = prefixes.longest(LONG[:80])

    assert found is not None
    assert len(found.tokens) == 60


def test_at_least_one_token_must_be_left_to_read() -> None:
    assert kept(60).longest(LONG[:60]) is None


def test_a_state_that_has_seen_more_cannot_be_rewound() -> None:
    assert kept(90).longest(LONG[:80]) is None


def test_short_and_known_beginnings_are_not_worth_a_place() -> None:
    prefixes = kept(60)

    assert not prefixes.wants(LONG[: LEAST_TOKENS - 1])
    assert not prefixes.wants(LONG[:60])
    assert prefixes.wants(LONG[:61])
    assert not KeptPrefixes([]).wants(LONG)


def test_the_least_recently_used_state_makes_room() -> None:
    prefixes = kept(40, 60, slots=2)
    oldest = prefixes.longest(LONG[:50])
    assert oldest is not None
    prefixes.used(oldest)

    slot, is_taken = prefixes.place(LONG[:90])

    assert is_taken
    assert slot != oldest.slot
    found = prefixes.longest(LONG[:80])
    assert found is not None
    assert found.slot == oldest.slot


def test_what_two_prompts_have_in_common_is_told_at_the_second() -> None:
    prefixes = kept()
    other = LONG.copy()
    other[50] = -1

    first, second = prefixes.common_start(LONG), prefixes.common_start(other)

    assert (first, second) == (0, 50)


def test_the_same_prompt_again_leaves_one_token_to_read() -> None:
    prefixes = kept()
    prefixes.common_start(LONG)

    assert prefixes.common_start(LONG) == len(LONG) - 1


def test_common_length_of_arrays_of_different_sizes() -> None:
    assert common_length(LONG, LONG[:7]) == 7
    assert common_length(LONG, LONG[1:]) == 0
