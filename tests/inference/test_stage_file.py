import hashlib
from pathlib import Path

import gguf
import numpy as np
import pytest

from inference import synthetic
from inference.errors import CutRefused, NoStages
from inference.gguf_header import LongArray, read_header
from inference.gguf_index import open_index
from inference.llama import Model
from inference.slices import slice_manifest, write_slice
from inference.stage_context import StageInfo
from inference.stage_file import StageSource, open_stages
from inference.synthetic_file import Recipe, copied_metadata, split, write
from tests.inference.models import DEMO_MODEL


def stages_of(path: Path) -> StageSource:
    return open_stages(open_index(path))


@pytest.fixture(scope="module")
def demo() -> StageSource:
    return stages_of(DEMO_MODEL)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> StageSource:
    """12 layers, an MTP block, and a head of its own."""
    path = tmp_path_factory.mktemp("large") / "model.gguf"
    return stages_of(synthetic.full122b(path, layers=12, shape=synthetic.SMALL))


def written(source: StageSource, folder: Path, first: int, last: int, *, without_experts: bool = False) -> Path:
    path = folder / f"stage-{first}-{last}.gguf"
    write_slice(source.plan(first, last, without_experts=without_experts), path)
    return path


def test_every_tensor_of_a_stage_has_the_bytes_of_the_models_layer(large: StageSource, tmp_path: Path) -> None:
    whole = {tensor.name: tensor for tensor in gguf.GGUFReader(large.index.path).tensors}

    cut = gguf.GGUFReader(written(large, tmp_path, 1, 2))

    named = {tensor.name: tensor for tensor in cut.tensors}
    assert len(named) == 2 + sum(name.startswith(("blk.4.", "blk.5.", "blk.6.", "blk.7.")) for name in whole)
    np.testing.assert_array_equal(named["token_embd.weight"].data, whole["token_embd.weight"].data[:1])
    np.testing.assert_array_equal(named["output_norm.weight"].data, whole["output_norm.weight"].data)
    for name, tensor in named.items():
        if name.startswith("blk."):
            _, layer, rest = name.split(".", 2)
            source = whole[f"blk.{int(layer) + 4}.{rest}"]
            assert tensor.tensor_type == source.tensor_type
            assert tensor.data_offset % 32 == 0
            np.testing.assert_array_equal(tensor.data, source.data)


def test_llama_cpp_loads_first_middle_and_last(large: StageSource, tmp_path: Path) -> None:
    vocabulary = large.vocabulary_size
    for units, layers, words in (((0, 1), (0, 4), vocabulary), ((1, 2), (4, 8), 1), ((2, 3), (8, 12), vocabulary)):
        with Model(written(large, tmp_path, *units)) as model:
            stage = StageInfo.of(model)

            assert model.vocabulary.size == words
            assert model.metadata["qwen35moe.block_count"] == "4"
            assert (stage.first_layer, stage.last_layer, stage.trunk_layers) == (*layers, 12)
            assert (stage.is_first, stage.is_last) == (layers[0] == 0, layers[1] == 12)
            assert (stage.model, stage.build) == (large.index.fingerprint, large.cuts.build)


def test_the_mtp_block_is_in_no_stage(large: StageSource, tmp_path: Path) -> None:
    header = read_header(written(large, tmp_path, 0, 3))

    assert not [name for name in header.tensors if "nextn" in name or name.startswith("blk.12.")]
    assert "qwen35moe.nextn_predict_layers" not in header.metadata
    assert header.metadata["qwen35moe.block_count"] == 12


def test_the_tokenizer_stays_with_the_coordinator(demo: StageSource, tmp_path: Path) -> None:
    metadata = read_header(written(demo, tmp_path, 0, 2)).metadata

    assert [key for key in metadata if key.startswith("tokenizer.")] == ["tokenizer.ggml.model"]
    assert not [key for key, value in metadata.items() if isinstance(value, LongArray)]
    assert metadata["qwen35moe.vocab_size"] == 4096


def test_the_last_stage_of_a_model_with_its_own_head_has_a_hole_for_the_embeddings(
    large: StageSource, tmp_path: Path
) -> None:
    path = written(large, tmp_path, 2, 3)

    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    assert not tensors["token_embd.weight"].data.any()
    assert tensors["output.weight"].data.any()
    assert 512 * path.stat().st_blocks < path.stat().st_size - tensors["token_embd.weight"].n_bytes // 2


def test_without_experts_there_are_holes_in_their_place(demo: StageSource, tmp_path: Path) -> None:
    size = written(demo, tmp_path, 0, 1).stat().st_size

    path = written(demo, tmp_path, 0, 1, without_experts=True)

    holes = [tensor for tensor in gguf.GGUFReader(path).tensors if "_exps" in tensor.name]
    assert path.stat().st_size == size
    assert len(holes) == 12
    assert not any(tensor.data.any() for tensor in holes)
    assert 512 * path.stat().st_blocks < size // 4
    with Model(path) as model:
        assert not StageInfo.of(model).has_experts


def test_a_stage_of_a_split_set_equals_that_of_the_whole_file(demo: StageSource, tmp_path: Path) -> None:
    parts = stages_of(split(DEMO_MODEL, tmp_path, 3)[2])

    plans = [source.plan(1, 2) for source in (demo, parts)]

    assert parts.index.fingerprint == demo.index.fingerprint
    assert plans[0].read(0, plans[0].size) == plans[1].read(0, plans[1].size)


def test_the_manifest_tells_which_pieces_are_holes(large: StageSource, tmp_path: Path) -> None:
    plan = large.plan(0, 1, without_experts=True)

    manifest = slice_manifest(plan, piece_bytes=4096)

    data = plan.read(0, plan.size)
    assert manifest.sha256 == hashlib.sha256(data).hexdigest()
    assert (manifest.build, manifest.layer, manifest.first, manifest.last) == (large.cuts.build, 0, 0, 1)
    holes = [number for number in range(len(manifest.pieces)) if manifest.is_hole(number)]
    assert len(holes) > len(manifest.pieces) // 3
    assert all(not any(data[4096 * number : 4096 * (number + 1)]) for number in holes)


def test_stages_are_never_larger_than_their_units_and_a_header(demo: StageSource, large: StageSource) -> None:
    for source in (demo, large):
        for first in range(source.cuts.units):
            for last in range(first + 1, source.cuts.units + 1):
                plan = source.plan(first, last)

                assert plan.size - len(plan.header) <= sum(source.unit_bytes[first:last])
                assert len(plan.header) < 100_000


def test_a_units_work_counts_used_experts_only(demo: StageSource) -> None:
    layer = demo.index.layers[0]
    routed = sum(tensor.n_in * tensor.n_out for tensor in layer.tensors)

    assert demo.unit_flops[0] == demo.unit_flops[1]
    assert 2 * routed * 4 * 4 < demo.unit_flops[0] < 2 * routed * 32 * 4


def with_array(path: Path, key: str, values: list[int]) -> Path:
    """The demo model with one more array in its metadata."""
    reader = gguf.GGUFReader(DEMO_MODEL)
    recipe = Recipe(f"demo with {key}", "qwen35moe", metadata=copied_metadata(reader, ""))
    recipe.metadata.pop(key, None)
    recipe.numbers(key.removeprefix("qwen35moe."), values)
    recipe.tensors += [synthetic.retyped(tensor, int(tensor.tensor_type)) for tensor in reader.tensors]
    return write(recipe, path)


def test_arrays_with_an_element_per_layer_are_cut_alike(tmp_path: Path) -> None:
    pattern = [1, 1, 1, 0, 1, 0, 1, 0]
    source = stages_of(with_array(tmp_path / "model.gguf", "qwen35moe.attention.recurrent_layers", pattern))

    metadata = read_header(written(source, tmp_path, 1, 3)).metadata

    assert source.cuts.boundaries == (0, 4, 6, 8)
    assert metadata["qwen35moe.attention.recurrent_layers"] == (1, 0, 1, 0)
    assert metadata["qwen35moe.rope.dimension_sections"] == gguf_value("qwen35moe.rope.dimension_sections")


def gguf_value(key: str) -> tuple[int, ...]:
    return tuple(gguf.GGUFReader(DEMO_MODEL).fields[key].contents())


def test_an_array_per_layer_that_is_not_known_is_not_guessed_at(tmp_path: Path) -> None:
    source = stages_of(with_array(tmp_path / "model.gguf", "qwen35moe.new_feature", list(range(8))))

    with pytest.raises(NoStages, match="new_feature has an element per layer"):
        source.plan(0, 1)


def test_it_refuses_units_outside(demo: StageSource) -> None:
    with pytest.raises(CutRefused, match="0:2"):
        demo.plan(1, 3)
