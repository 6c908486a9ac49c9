from dataclasses import replace
from pathlib import Path

import pytest

from inference.errors import CutRefused, NoStages
from inference.gguf_index import ModelIndex, open_index
from inference.stages import StageCuts, stage_cuts, stage_fingerprint
from inference.synthetic import small_gpt_oss, small_qwen3moe
from tests.inference.models import DEMO_MODEL

HYBRID = StageCuts("ab" * 16, "qwen35moe", tuple(range(0, 49, 4)))
PLAIN = StageCuts("ab" * 16, "qwen3moe", tuple(range(49)))


@pytest.fixture(scope="module")
def demo() -> ModelIndex:
    return open_index(DEMO_MODEL)


def test_a_hybrid_model_is_cut_behind_its_layers_of_full_attention(demo: ModelIndex) -> None:
    cuts = stage_cuts(demo)

    assert cuts.boundaries == (0, 4, 8)
    assert cuts.units == 2
    assert cuts.layers_of(1, 2) == (4, 8)
    assert cuts.units_of(0, 8) == (0, 2)


def test_a_plain_model_is_cut_anywhere(tmp_path: Path) -> None:
    cuts = stage_cuts(open_index(small_qwen3moe(tmp_path / "model.gguf")))

    assert cuts.boundaries == (0, 1, 2, 3)


def test_recurrent_layers_at_the_end_belong_to_the_last_unit(demo: ModelIndex) -> None:
    layers = {**demo.layers, 8: demo.layers[0], 9: demo.layers[0]}
    odd = replace(demo, trunk_layers=10, layers=layers, recurrent_layers=frozenset({0, 1, 2, 4, 5, 6, 8, 9}))

    assert stage_cuts(odd).boundaries == (0, 4, 10)


def test_a_model_that_was_not_tried_has_no_stages(tmp_path: Path, demo: ModelIndex) -> None:
    untried = open_index(small_gpt_oss(tmp_path / "model.gguf"))

    with pytest.raises(NoStages, match="gpt-oss is not among"):
        stage_cuts(untried)
    with pytest.raises(NoStages, match="nowhere to cut"):
        stage_cuts(replace(demo, recurrent_layers=frozenset(range(8))))
    with pytest.raises(NoStages, match="experts in 8 of 9 layers"):
        stage_cuts(replace(demo, trunk_layers=9))


@pytest.mark.parametrize(
    ("asked", "nearest", "why"),
    [
        ((0, 5), "0:4", "cannot be cut at 5, because every stage needs a layer of full attention"),
        ((3, 30), "4:32", "cannot be cut at 3 and 30"),
        ((9, 10), "8:12", "cannot be cut at 9 and 10"),
        ((40, 60), "40:48", "choose A < B within 0:48"),
        ((8, 8), "4:8", "choose A < B within 0:48"),
        ((12, 4), "0:4", "choose A < B within 0:48"),
        ((-7, 2), "0:4", "choose A < B within 0:48"),
    ],
)
def test_it_refuses_a_cut_that_cannot_work_with_the_nearest_that_can(
    asked: tuple[int, int], nearest: str, why: str
) -> None:
    with pytest.raises(CutRefused, match=why) as refused:
        HYBRID.units_of(*asked)

    assert str(refused.value).endswith(f"the nearest stage is {nearest}")


def test_it_refuses_units_that_the_model_does_not_have() -> None:
    for units in ((0, 13), (3, 3), (-1, 2)):
        with pytest.raises(CutRefused, match="0:12"):
            HYBRID.layers_of(*units)


def test_even_stages_cover_the_trunk_and_differ_by_one_unit_at_most() -> None:
    for cuts, unit_layers in ((HYBRID, 4), (PLAIN, 1)):
        for stages in range(1, cuts.units + 1):
            ranges = cuts.even(stages)

            sizes = [(last - first) // unit_layers for first, last in ranges]
            assert [first for first, _ in ranges] == [0, *(last for _, last in ranges[:-1])]
            assert ranges[-1][1] == 48
            assert max(sizes) - min(sizes) <= 1
    with pytest.raises(CutRefused, match="1 to 12"):
        HYBRID.even(13)


def test_the_stage_build_has_a_fingerprint_of_its_own() -> None:
    assert HYBRID.build == stage_fingerprint("ab" * 16) == "e0547b24e808f590b304b34d3b2d1feb"
