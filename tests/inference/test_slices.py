import hashlib
import json
import random
from pathlib import Path

import gguf
import numpy as np
import pytest

from inference.errors import BadManifest, FileUnreadable, FileUnwritable, RangeOutside, Truncated
from inference.gguf_index import ModelIndex, open_index
from inference.slices import SliceFile, SliceManifest, plan_slice, slice_manifest, write_slice
from inference.synthetic import demo_variant, sparse122b, split
from tests.model_files import DEMO_MODEL, tiny_moe


@pytest.fixture(scope="module")
def demo() -> ModelIndex:
    return open_index(DEMO_MODEL)


def check_against_source(slice_path: Path, source: Path, layer: int, first: int, last: int) -> None:
    """The gguf package opens both; every tensor of the slice is the cut of the source's."""
    whole = {tensor.name: tensor for tensor in gguf.GGUFReader(source).tensors}
    cut = gguf.GGUFReader(slice_path)
    assert {tensor.name for tensor in cut.tensors} == {
        name for name in whole if name.startswith(f"blk.{layer}.ffn_") and name.endswith("_exps.weight")
    }
    for tensor in cut.tensors:
        assert tensor.tensor_type == whole[tensor.name].tensor_type
        assert tensor.data_offset % 32 == 0
        np.testing.assert_array_equal(tensor.data, whole[tensor.name].data[first:last])


def test_a_slice_is_a_gguf_with_the_bytes_of_its_source(tmp_path: Path, demo: ModelIndex) -> None:
    plan = plan_slice(demo, 3, 5, 12)

    digest = write_slice(plan, tmp_path / "slice.gguf")

    data = (tmp_path / "slice.gguf").read_bytes()
    assert len(data) == plan.size
    assert digest == hashlib.sha256(data).hexdigest()
    assert [child.name for child in tmp_path.iterdir()] == ["slice.gguf"]
    check_against_source(tmp_path / "slice.gguf", DEMO_MODEL, 3, 5, 12)


def test_merged_and_mixed_types_are_cut_alike(tmp_path: Path) -> None:
    source = demo_variant(tmp_path / "m.gguf", gate="Q8_0", down="Q6_K", merged=True)

    write_slice(plan_slice(open_index(source), 7, 31, 32), tmp_path / "slice.gguf")

    check_against_source(tmp_path / "slice.gguf", source, 7, 31, 32)
    with SliceFile.open(tmp_path / "slice.gguf") as opened:
        assert opened.merged
        assert opened.tensors["gate_up"].ne == (256, 512, 1)


def test_a_slice_of_a_split_set_equals_that_of_the_whole_file(tmp_path: Path) -> None:
    whole = tiny_moe(tmp_path / "model.gguf")
    part = split(whole, tmp_path, 4)[2]

    plans = [plan_slice(open_index(path), 1, 1, 3) for path in (whole, part)]

    assert len({segment.file for segment in plans[1].segments}) > 1
    assert plans[0].read(0, plans[0].size) == plans[1].read(0, plans[1].size)


def test_sizes_that_are_no_multiple_of_the_alignment_are_padded(tmp_path: Path) -> None:
    source = tmp_path / "odd.gguf"
    writer = gguf.GGUFWriter(str(source), "qwen3moe")
    writer.add_block_count(1)
    writer.add_embedding_length(3)
    writer.add_expert_used_count(1)
    for role, shape in (("gate", (5, 1, 3)), ("up", (5, 1, 3)), ("down", (5, 3, 1))):
        writer.add_tensor(f"blk.0.ffn_{role}_exps.weight", np.random.default_rng(0).random(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    plan = plan_slice(open_index(source), 0, 2, 5)
    write_slice(plan, tmp_path / "slice.gguf")

    assert [segment.padding for segment in plan.segments] == [28, 28, 28]
    check_against_source(tmp_path / "slice.gguf", source, 0, 2, 5)


def test_any_part_of_a_slice_can_be_read(demo: ModelIndex) -> None:
    plan = plan_slice(demo, 0, 0, 2)
    whole = plan.read(0, plan.size)
    dice = random.Random(7)

    edges = [
        0,
        1,
        len(plan.header) - 1,
        len(plan.header),
        len(plan.header) + 1,
        plan.size - 1,
        plan.size,
        plan.size + 9,
    ]
    spans = [(a, b) for a in edges for b in edges] + [
        (dice.randrange(plan.size), dice.randrange(plan.size)) for _ in range(200)
    ]
    for start, stop in spans:
        assert plan.read(start, stop) == whole[start:stop]


def test_offsets_above_four_gigabytes_are_cut_right(tmp_path: Path) -> None:
    path = sparse122b(tmp_path / "122b.gguf", filled=[(47, 200, 203)])
    index = open_index(path)

    plan = plan_slice(index, 47, 199, 203)
    write_slice(plan, tmp_path / "slice.gguf")

    assert min(segment.offset for segment in plan.segments) > 60e9
    with SliceFile.open(tmp_path / "slice.gguf") as opened, open(path, "rb") as source:
        for role, tensor in opened.tensors.items():
            known = next(t for t in index.layers[47].tensors if t.role == role)
            source.seek(known.offset + 199 * known.expert_bytes)
            assert tensor.data.tobytes() == source.read(4 * known.expert_bytes)
            assert not tensor.data[0].any()
            assert tensor.data[1:].any(axis=1).all()


@pytest.mark.parametrize(("first", "last"), [(-1, 2), (2, 2), (3, 2), (31, 33), (0, 1 << 70)])
def test_a_range_outside_the_layer_is_refused(demo: ModelIndex, first: int, last: int) -> None:
    with pytest.raises(RangeOutside, match="within 0:32"):
        plan_slice(demo, 0, first, last)


@pytest.mark.parametrize("layer", [-1, 8, 1 << 70])
def test_a_layer_without_experts_is_refused(demo: ModelIndex, layer: int) -> None:
    with pytest.raises(RangeOutside, match="layers 0 to 7"):
        plan_slice(demo, layer, 0, 1)


def test_the_manifest_has_the_digest_of_the_whole_and_of_each_piece(demo: ModelIndex) -> None:
    plan = plan_slice(demo, 2, 0, 3)
    data = plan.read(0, plan.size)

    manifest = slice_manifest(plan, piece_bytes=100_000)

    assert manifest.sha256 == hashlib.sha256(data).hexdigest()
    assert list(manifest.pieces) == [
        hashlib.sha256(data[at : at + 100_000]).hexdigest() for at in range(0, len(data), 100_000)
    ]
    assert (manifest.build, manifest.layer, manifest.first, manifest.last) == (demo.fingerprint, 2, 0, 3)
    assert SliceManifest.from_json(manifest.to_json()) == manifest


@pytest.mark.parametrize(
    "change",
    [
        {"size": -1},
        {"size": 10**9},
        {"piece_bytes": 0},
        {"layer": "2"},
        {"layer": True},
        {"sha256": "xyz"},
        {"sha256": 5},
        {"pieces": None},
        {"pieces": ["0" * 63]},
        {"build": 7},
    ],
)
def test_a_manifest_that_does_not_add_up_is_refused(demo: ModelIndex, change: dict[str, object]) -> None:
    body = json.loads(slice_manifest(plan_slice(demo, 2, 0, 3)).to_json())

    with pytest.raises(BadManifest):
        SliceManifest.from_json(json.dumps(body | change))


@pytest.mark.parametrize("text", ["", "[]", "{}", "5", b"\xff", "[" * 100_000])
def test_rubbish_in_place_of_a_manifest_is_refused(text: str | bytes) -> None:
    with pytest.raises(BadManifest):
        SliceManifest.from_json(text)


def test_the_progress_adds_up_to_the_size(tmp_path: Path, demo: ModelIndex) -> None:
    plan = plan_slice(demo, 0, 0, 32)
    counts: list[int] = []

    write_slice(plan, tmp_path / "slice.gguf", counts.append)

    assert len(counts) == 4
    assert sum(counts) == plan.size


def test_a_source_that_shrank_is_reported_and_leaves_nothing_behind(tmp_path: Path) -> None:
    source = tiny_moe(tmp_path / "model.gguf")
    plan = plan_slice(open_index(source), 2, 0, 4)
    source.write_bytes(source.read_bytes()[:-64])

    with pytest.raises(Truncated, match="changed after it was opened"):
        write_slice(plan, tmp_path / "slice.gguf")
    source.unlink()
    with pytest.raises(FileUnreadable):
        plan.read(len(plan.header), plan.size)

    assert list(tmp_path.iterdir()) == []


def test_it_never_writes_over_the_model_itself(tmp_path: Path) -> None:
    source = tiny_moe(tmp_path / "model.gguf")
    before = source.read_bytes()

    with pytest.raises(FileUnwritable, match="the model itself"):
        write_slice(plan_slice(open_index(source), 0, 0, 1), source)
    with pytest.raises(FileUnwritable, match="cannot be written"):
        write_slice(plan_slice(open_index(source), 0, 0, 1), tmp_path / "absent" / "slice.gguf")

    assert source.read_bytes() == before
