from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest

from inference.gguf_index import open_index
from inference.synthetic import (
    SHAPE_122B,
    demo_variant,
    full122b,
    shape122b,
    small_gpt_oss,
    small_qwen3moe,
    small_qwen35moe,
    sparse122b,
    split,
)
from inference.synthetic_weights import generator, random_matrix
from tests.model_files import DEMO_MODEL, logits

# llama.cpp can do with a 122B of narrow experts what it does with the real one: all ratios of the dense path are kept.
NARROW_122B = replace(SHAPE_122B, n_ff=256, experts=32)


@pytest.fixture(scope="module")
def demo_logits() -> np.ndarray:
    return logits(DEMO_MODEL)


@pytest.mark.parametrize("build", [small_qwen35moe, small_qwen3moe, small_gpt_oss])
@pytest.mark.parametrize("expert_type", ["Q4_K", "Q5_K", "Q6_K", "Q8_0", "MXFP4", "F16"])
def test_llama_cpp_runs_the_small_models(tmp_path: Path, build, expert_type: str) -> None:  # type: ignore[no-untyped-def]
    path = build(tmp_path / "model.gguf", expert_type=expert_type)

    values = logits(path)

    assert np.isfinite(values).all()
    assert 0.1 < values.std() < 10
    assert open_index(path).layers[0].type_names == (expert_type,) * 3
    assert path.stat().st_size < 32e6


def test_llama_cpp_runs_the_mix_of_types_with_the_whole_vocabulary(tmp_path: Path) -> None:
    path = full122b(tmp_path / "model.gguf", layers=8, processes=2, shape=replace(NARROW_122B, n_embd=512))

    values = logits(path)
    index = open_index(path)

    assert values.shape[1] == 248_320
    assert np.isfinite(values).all()
    assert 0.1 < values.std() < 10
    assert [index.layers[layer].type_names[2] for layer in range(8)] == [
        "Q6_K", "Q4_K", "Q4_K", "Q6_K", "Q4_K", "Q4_K", "Q6_K", "Q6_K",
    ]  # fmt: skip


def test_several_processes_write_what_one_writes_and_tell_how_far_they_are(tmp_path: Path) -> None:
    shares: list[float] = []
    narrow = replace(NARROW_122B, experts=8, vocabulary=8192)

    alone = full122b(tmp_path / "alone.gguf", 2, shape=narrow)
    together = full122b(tmp_path / "together.gguf", 2, processes=3, progress=shares.append, shape=narrow)

    assert together.read_bytes() == alone.read_bytes()
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)


@pytest.mark.parametrize(("ggml_type", "name"), [(12, "Q4_K"), (13, "Q5_K"), (14, "Q6_K")])
def test_random_blocks_have_the_deviation_that_was_asked_for(ggml_type: int, name: str) -> None:
    matrix = random_matrix(generator(7, name), (64, 4096), ggml_type)

    values = gguf.quants.dequantize(matrix, gguf.GGMLQuantizationType(ggml_type))

    assert values.std() == pytest.approx(4096**-0.5, rel=0.1)
    assert abs(values.mean()) < 0.02 * values.std()


def test_a_prediction_block_does_not_change_what_the_model_says(tmp_path: Path) -> None:
    plain = logits(small_qwen35moe(tmp_path / "plain.gguf"))

    np.testing.assert_array_equal(plain, logits(small_qwen35moe(tmp_path / "nextn.gguf", nextn=1)))


def test_the_seed_decides_the_weights(tmp_path: Path) -> None:
    first, second = (open_index(small_qwen3moe(tmp_path / f"{seed}.gguf", seed=seed)) for seed in (1, 2))
    again = open_index(small_qwen3moe(tmp_path / "again.gguf", seed=1))

    assert first.fingerprint != second.fingerprint
    assert (tmp_path / "1.gguf").read_bytes() == again.path.read_bytes()


def test_merging_gate_and_up_leaves_the_logits_alone(tmp_path: Path, demo_logits: np.ndarray) -> None:
    merged = demo_variant(tmp_path / "merged.gguf", merged=True)

    np.testing.assert_array_equal(logits(merged), demo_logits)


def test_splitting_leaves_the_logits_alone(tmp_path: Path, demo_logits: np.ndarray) -> None:
    parts = split(DEMO_MODEL, tmp_path, 3)

    np.testing.assert_array_equal(logits(parts[0]), demo_logits)
    assert open_index(parts[2]).fingerprint == open_index(DEMO_MODEL).fingerprint


@pytest.mark.parametrize(
    ("gate", "up", "down", "layers"),
    [("Q8_0", "Q8_0", "Q8_0", {}), ("Q4_K", "Q8_0", "Q4_K", {}), ("Q4_K", "Q4_K", "Q4_K", {0: "Q6_K", 3: "Q6_K"})],
)
def test_other_types_say_nearly_the_same(
    tmp_path: Path, demo_logits: np.ndarray, gate: str, up: str, down: str, layers: dict[int, str]
) -> None:
    path = demo_variant(tmp_path / "variant.gguf", gate, up, down, layers)

    values = logits(path, generated=0)

    known = demo_logits[: len(values)]
    assert np.isfinite(values).all()
    assert (values.argmax(axis=1) == known.argmax(axis=1)).mean() > 0.5
    assert np.corrcoef(values.ravel(), known.ravel())[0, 1] > 0.9


def test_a_narrow_122b_runs(tmp_path: Path) -> None:
    path = shape122b(tmp_path / "narrow.gguf", shape=NARROW_122B)
    index = open_index(path)

    values = logits(path, prompt="Yes", generated=2)

    assert (index.n_embd, index.experts_used, index.trunk_layers) == (3072, 8, 2)
    assert np.isfinite(values).all()
    assert 0.1 < values.std() < 10


@pytest.mark.slow
def test_two_layers_of_the_real_122b_run(tmp_path: Path) -> None:
    path = shape122b(tmp_path / "122b.gguf")
    index = open_index(path)

    values = logits(path, prompt="Yes", generated=1)
    path.unlink()

    assert index.layers[0].expert_bytes == 5_308_416
    assert index.routed_bytes == 2 * 256 * 5_308_416
    assert np.isfinite(values).all()


def test_a_file_made_by_the_same_call_is_not_made_again(tmp_path: Path) -> None:
    path = small_qwen3moe(tmp_path / "model.gguf")
    made = path.stat().st_mtime_ns

    small_qwen3moe(path)
    kept = path.stat().st_mtime_ns
    small_qwen3moe(path, seed=5)

    assert kept == made
    assert path.stat().st_mtime_ns > made


def test_a_file_that_was_cut_short_is_made_again(tmp_path: Path) -> None:
    path = small_qwen3moe(tmp_path / "model.gguf")
    whole = path.read_bytes()
    path.write_bytes(whole[:-1000])

    small_qwen3moe(path)

    assert path.read_bytes() == whole


def test_the_sparse_122b_takes_little_room(tmp_path: Path) -> None:
    path = sparse122b(tmp_path / "122b.gguf")
    index = open_index(path)

    assert (len(index.layers), index.nextn_layers, index.experts_per_layer) == (48, 1, 256)
    assert path.stat().st_size > 60e9
    assert path.stat().st_blocks * 512 < 100e6
