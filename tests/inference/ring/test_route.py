"""Which stages make a ring."""

import pytest

from inference.ring.errors import RingIncomplete
from inference.ring.route import choose_route
from inference.ring.steps import StageDescription

MODEL, OTHER = "ab" * 16, "cd" * 16


def stage(first: int, last: int, fingerprint: str = MODEL, layers: int = 12) -> StageDescription:
    return StageDescription(fingerprint, first, last, layers, 256, 4096)


def test_it_takes_the_fewest_stages() -> None:
    stages = {"a": stage(0, 4), "b": stage(4, 8), "c": stage(8, 12), "d": stage(4, 12)}

    assert choose_route(stages, MODEL, 12, {}) == ("a", "d")


def test_of_equal_stages_it_takes_those_with_fewer_rings() -> None:
    stages = {"a": stage(0, 12), "b": stage(0, 12)}

    assert choose_route(stages, MODEL, 12, {"a": 2, "b": 1}) == ("b",)


def test_it_names_the_first_layer_that_nobody_holds() -> None:
    stages = {"a": stage(0, 4), "c": stage(8, 12)}

    with pytest.raises(RingIncomplete, match="layer 4"):
        choose_route(stages, MODEL, 12, {})


def test_stages_of_another_model_do_not_count() -> None:
    stages = {"a": stage(0, 12, OTHER), "b": stage(0, 12, layers=16)}

    with pytest.raises(RingIncomplete):
        choose_route(stages, MODEL, 12, {})
