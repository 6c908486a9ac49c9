from pathlib import Path

import numpy as np
import pytest

from inference import synthetic
from inference.errors import NotAStage
from inference.llama import Context, Model
from inference.stage_context import HiddenBatch, StageContext
from tests.inference.models import DEMO_MODEL, demo_model
from tests.inference.stage_chain import SETTINGS, Chain, cut, play


def difference(model: Path, folder: Path, stages: int) -> float:
    """Largest between the chain's logits and those of plain llama.cpp, fed the same batches."""
    with Model(model) as whole, Context(whole, SETTINGS) as context:
        expected = play(context)
    with Chain.opened(cut(model, folder, stages)) as chain:
        found = play(chain)
    assert np.abs(expected).max() > 1
    return float(np.abs(found - expected).max())


def test_two_stages_of_a_hybrid_model_give_its_bits(tmp_path: Path) -> None:
    assert difference(DEMO_MODEL, tmp_path, 2) == 0.0


def test_three_stages_of_a_hybrid_model_with_mtp_block_and_own_head_give_its_bits(tmp_path: Path) -> None:
    model = synthetic.full122b(tmp_path / "model.gguf", layers=12, shape=synthetic.SMALL)

    assert difference(model, tmp_path, 3) == 0.0


@pytest.mark.parametrize("stages", [2, 3])
def test_stages_of_a_plain_model_give_its_bits(tmp_path: Path, stages: int) -> None:
    model = synthetic.small_qwen3moe(tmp_path / "model.gguf")

    assert difference(model, tmp_path, stages) == 0.0


def test_it_refuses_a_model_that_is_no_stage() -> None:
    with pytest.raises(NotAStage, match="not a stage; make one"):
        StageContext(demo_model(), SETTINGS)


def test_positions_are_laid_out_in_sections_of_the_batch() -> None:
    text, plain = HiddenBatch(4, n_embd=2, sections=4), HiddenBatch(4, n_embd=2, sections=1)
    for batch in (text, plain):
        batch.positions[:3] = [7, 8, 9]
        batch.size = 3

        batch.lay_out()

    assert [text.struct.pos[index] for index in range(12)] == [7, 8, 9] * 3 + [0, 0, 0]
    assert [plain.struct.pos[index] for index in range(3)] == [7, 8, 9]
    assert not text.struct.token
