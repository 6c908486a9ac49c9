from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from inference import synthetic
from inference.backend import ExpertCall, ExpertsMissing, Handler, SwarmBackend
from inference.errors import NotAStage
from inference.gguf_index import open_index
from inference.llama import Context, Model
from inference.slices import write_slice
from inference.stage_context import HiddenBatch, StageContext
from inference.stage_file import open_stages
from inference.stages import GRAPHS
from tests.inference.models import DEMO_MODEL, demo_model
from tests.inference.stage_chain import SETTINGS, Chain, cut, play
from tests.inference.stage_models import MAKERS


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


@pytest.mark.parametrize("architecture", sorted(MAKERS))
def test_every_other_architecture_that_can_be_cut_gives_its_bits(tmp_path: Path, architecture: str) -> None:
    model = MAKERS[architecture](tmp_path / "model.gguf")

    assert difference(model, tmp_path, open_stages(open_index(model)).cuts.units) == 0.0


def test_no_architecture_is_untried() -> None:
    assert GRAPHS.keys() == {"qwen35moe", "qwen3moe", *MAKERS}


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


@pytest.fixture
def bare(tmp_path: Path) -> tuple[Path, Path]:
    """The first stage of the demo model with its experts and without."""
    source = open_stages(open_index(DEMO_MODEL))
    whole, bare = tmp_path / "whole.gguf", tmp_path / "bare.gguf"
    write_slice(source.plan(0, 1), whole)
    write_slice(source.plan(0, 1, without_experts=True), bare)
    return whole, bare


def hidden_of(path: Path, backend: SwarmBackend, handler: Handler) -> tuple[int, npt.NDArray[np.float32]]:
    """The code of a decode of six tokens, and what came out."""
    backend.handler = handler
    with Model(path) as model, backend.lane(0, 1), StageContext(model, SETTINGS) as context:
        batch = context.batch()
        batch.size = 6
        batch.tokens[:6], batch.positions[:6] = range(100, 106), range(6)
        code = context.decode(batch)
        return code, context.hidden(6).copy()


@pytest.fixture
def backend() -> Iterator[SwarmBackend]:
    backend = SwarmBackend.install(ExpertCall.compute_all)
    yield backend
    backend.handler, backend.has_weights = ExpertCall.compute_all, True


def test_a_stage_without_experts_gives_the_same_bits_when_others_compute_them(
    bare: tuple[Path, Path], backend: SwarmBackend
) -> None:
    rows: list[npt.NDArray[np.float32]] = []

    def note(call: ExpertCall) -> None:
        call.compute_all()
        rows.append(call.output.copy())

    def answer(call: ExpertCall) -> None:
        call.output[:] = rows.pop(0)

    expected = hidden_of(bare[0], backend, note)
    backend.has_weights = False
    found = hidden_of(bare[1], backend, answer)

    assert (expected[0], found[0], rows) == (0, 0, [])
    assert np.abs(expected[1]).max() > 0
    assert np.array_equal(found[1], expected[1])


@pytest.mark.parametrize("compute", [ExpertCall.compute_all, lambda call: call.compute(np.array([0]), np.array([0]))])
def test_a_step_fails_when_a_stage_without_experts_would_have_to_compute_one(
    bare: tuple[Path, Path], backend: SwarmBackend, compute: Handler
) -> None:
    backend.has_weights = False

    code, _ = hidden_of(bare[1], backend, compute)

    assert code < 0


def test_a_stage_without_experts_is_refused_where_nobody_computes_them(
    bare: tuple[Path, Path], backend: SwarmBackend
) -> None:
    with pytest.raises(ExpertsMissing, match="no swarm to compute them"):
        hidden_of(bare[1], backend, ExpertCall.compute_all)


def test_experts_of_stages_that_are_computed_apart_change_no_bit(tmp_path: Path, backend: SwarmBackend) -> None:
    calls: list[ExpertCall] = []

    def in_two_parts(call: ExpertCall) -> None:
        calls.append(call)
        call.output[:] = np.nan
        for part in (call.expert_ids % 2 == 0, call.expert_ids % 2 == 1):
            tokens, slots = np.nonzero(part)
            if len(tokens):
                call.compute(tokens, slots)

    with Context(demo_model(), SETTINGS) as context:
        expected = play(context)
    backend.handler = in_two_parts
    with backend.lane(0, 1), Chain.opened(cut(DEMO_MODEL, tmp_path, 2)) as chain:
        found = play(chain)

    assert np.array_equal(found, expected)
    assert len(set(map(id, calls))) < len(calls)  # a step of a known shape brings the same ones again
