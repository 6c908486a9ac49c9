"""What stages should answer, against stages: the same bits at every cut, and the same logits."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from inference import synthetic
from inference.gguf_index import open_index
from inference.llama import Batch, ContextSettings
from inference.stage_context import HiddenBatch
from inference.stage_oracle import FreshBatch, OracleFailed, StageOracle
from inference.stages import stage_cuts
from tests.inference.stage_chain import Chain, cut

SETTINGS = ContextSettings(sequence_tokens=64, sequences=3, batch_tokens=24, threads=1, outputs=4)


def fresh(lengths: tuple[int, ...], wanted: int = 2) -> FreshBatch:
    """Sequences of these lengths, one after another, all from position 0."""
    rows = sum(lengths)
    wants = np.zeros(rows, np.int8)
    wants[-wanted:] = 1
    return FreshBatch(
        SETTINGS,
        np.random.default_rng(rows).integers(0, 4096, rows).astype(np.int32),
        np.concatenate([np.arange(length) for length in lengths]).astype(np.int32),
        np.repeat(np.arange(len(lengths)), lengths).astype(np.int32),
        wants,
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic.full122b(tmp_path_factory.mktemp("oracle") / "model.gguf", layers=12, shape=synthetic.SMALL)


@pytest.fixture(scope="module")
def oracle(model: Path) -> Iterator[StageOracle]:
    cuts = stage_cuts(open_index(model))
    oracle = StageOracle(model, cuts.boundaries[1:-1])
    yield oracle
    oracle.close()


@pytest.mark.parametrize("lengths", [(9,), (5, 5, 5), (2, 7, 4)])
def test_it_gives_the_bits_of_every_stage(
    oracle: StageOracle, model: Path, tmp_path: Path, lengths: tuple[int, ...]
) -> None:
    asked = fresh(lengths)
    size = len(asked.tokens)

    expected = oracle.compute(asked)

    with Chain.opened(cut(model, tmp_path, 3), SETTINGS) as chain:
        hidden = None
        for context in chain.contexts:
            batch: Batch = context.batch()
            batch.size = size
            batch.tokens[:size], batch.positions[:size] = asked.tokens, asked.positions
            batch.sequences[:size], batch.wants_logits[:size] = asked.sequences, asked.wants_logits
            if isinstance(batch, HiddenBatch):
                batch.hidden[:size] = hidden
                np.testing.assert_array_equal(batch.hidden[:size], expected.hidden[context.stage.first_layer])
            assert context.decode(batch) == 0
            hidden = None if context.stage.is_last else context.hidden(size).copy()
        np.testing.assert_array_equal(chain.logits(2), expected.logits)


def test_a_batch_that_does_not_fit_is_told_and_the_next_is_computed(oracle: StageOracle) -> None:
    asked = fresh((9,))
    broken = FreshBatch(SETTINGS, asked.tokens, asked.positions, asked.sequences + 7, asked.wants_logits)

    with pytest.raises(OracleFailed):
        oracle.compute(broken)

    assert set(oracle.compute(asked).hidden) == {4, 8}


def test_a_process_that_was_killed_is_started_again(model: Path) -> None:
    oracle = StageOracle(model, [4, 8])
    asked = fresh((3,))
    before = oracle.compute(asked)
    assert oracle._process is not None
    oracle._process.kill()
    oracle._process.wait()

    with pytest.raises(OracleFailed, match="starts another"):
        oracle.compute(asked)
    again = oracle.compute(asked)

    np.testing.assert_array_equal(again.logits, before.logits)
    oracle.close()


def test_a_model_that_cannot_be_opened_fails_the_question(tmp_path: Path) -> None:
    oracle = StageOracle(tmp_path / "nothing.gguf", [4])

    with pytest.raises(OracleFailed, match="ended"):
        oracle.compute(fresh((3,)))

    oracle.close()
