from pathlib import Path

import gguf
import numpy as np
import pytest

from inference.errors import GGUFError, NotASlice, NotGGUF
from inference.gguf_index import open_index
from inference.slices import SliceFile, plan_slice, write_slice
from tests.model_files import DEMO_MODEL, tiny_moe


@pytest.fixture
def slice_path(tmp_path: Path) -> Path:
    path = tmp_path / "slice.gguf"
    write_slice(plan_slice(open_index(DEMO_MODEL), 4, 30, 32), path)
    return path


def test_it_tells_what_the_slice_is(slice_path: Path) -> None:
    opened = SliceFile.open(slice_path)

    assert opened.build == open_index(DEMO_MODEL).fingerprint
    assert (opened.layer, opened.first, opened.last) == (4, 30, 32)
    assert (opened.architecture, opened.activation) == ("qwen35moe", "swiglu")
    assert (opened.n_embd, opened.n_ff, opened.merged) == (256, 256, False)


def test_the_weights_are_read_only_aligned_and_outlive_the_file_object(slice_path: Path) -> None:
    source = {tensor.name: tensor for tensor in gguf.GGUFReader(DEMO_MODEL).tensors}

    with SliceFile.open(slice_path) as opened:
        tensors = dict(opened.tensors)

    assert set(tensors) == {"gate", "up", "down"}
    for role, tensor in tensors.items():
        assert (tensor.ggml_type, tensor.ne) == (12, (256, 256, 2))
        assert tensor.data.ctypes.data % 32 == 0
        assert not tensor.data.flags.writeable
        assert tensor.data.shape == (2, 36864)
        known = source[f"blk.4.ffn_{role}_exps.weight"].data[30:32]
        np.testing.assert_array_equal(tensor.data, known.reshape(2, -1))


def test_another_gguf_is_not_a_slice(tmp_path: Path) -> None:
    with pytest.raises(NotASlice, match=r"manage\.py slice"):
        SliceFile.open(DEMO_MODEL)
    (tmp_path / "text").write_text("hello, world")
    with pytest.raises(NotGGUF):
        SliceFile.open(tmp_path / "text")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"expertswarm.layer", b"expertswarm.leyer"),
        (b"expertswarm.build", b"expertswarm.bulid"),
        (b"blk.4.ffn_up_exps", b"blk.5.ffn_up_exps"),
        (b"blk.4.ffn_up_exps", b"blk.4.ffn_op_exps"),
        (b"expertswarm.last\n\0\0\0 ", b"expertswarm.last\n\0\0\0!"),
    ],
)
def test_a_slice_that_contradicts_itself_is_refused(slice_path: Path, old: bytes, new: bytes) -> None:
    data = slice_path.read_bytes()
    assert data.count(old) == 1 or b"last" in old
    slice_path.write_bytes(data.replace(old, new))

    with pytest.raises(NotASlice):
        SliceFile.open(slice_path)


def test_mutated_slices_raise_only_errors_of_ours(slice_path: Path) -> None:
    data = slice_path.read_bytes()
    dice = np.random.default_rng(11)
    refused = 0
    for _ in range(400):
        broken = bytearray(data)
        for position in dice.integers(0, 750, 3):
            broken[position] = dice.integers(256)
        slice_path.write_bytes(bytes(broken))
        try:
            SliceFile.open(slice_path)
        except GGUFError:
            refused += 1

    assert refused > 200


def test_an_ungated_layer_gives_two_roles(tmp_path: Path) -> None:
    source = tiny_moe(tmp_path / "m.gguf", omit=[f"blk.{layer}.ffn_gate_exps.weight" for layer in range(3)])
    write_slice(plan_slice(open_index(source), 0, 0, 2), tmp_path / "slice.gguf")

    assert set(SliceFile.open(tmp_path / "slice.gguf").tensors) == {"up", "down"}
