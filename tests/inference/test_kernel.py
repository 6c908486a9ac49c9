"""The expert kernel: exact rows, the grouping rule, an independent oracle, and what strangers may send."""

from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import pytest

from inference.gguf_header import type_number
from inference.gguf_index import Role, open_index
from inference.kernel import CpuRuntime, GgmlKernel, kernel_class_name, quantize_rows
from inference.rows import TYPE_Q8_0, TYPE_Q8_K, IntArray, RowsError
from inference.slice_file import SliceFile
from inference.slices import plan_slice, write_slice
from inference.synthetic_slice import SliceShape, write_synthetic_slice
from tests.inference.models import DEMO_MODEL

LAYER, FIRST, LAST = 3, 4, 20


@pytest.fixture(scope="module")
def runtime() -> Iterator[CpuRuntime]:
    runtime = CpuRuntime(1)
    yield runtime
    runtime.close()


@pytest.fixture(scope="module")
def slice_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("slices") / "slice.gguf"
    write_slice(plan_slice(open_index(DEMO_MODEL), LAYER, FIRST, LAST), path)
    return path


@pytest.fixture
def kernel(slice_path: Path, runtime: CpuRuntime) -> Iterator[GgmlKernel]:
    with GgmlKernel.open(slice_path, runtime) as kernel:
        yield kernel


def piece_of(folder: Path, kind: str, *, up: str = "", merged: bool = False) -> Path:
    """A slice of 8 experts of one ggml type; up: of another one."""
    number = type_number(kind)
    types: dict[Role, int] = {"gate": number, "up": type_number(up or kind), "down": number}
    shape = SliceShape(256, 256, 8, types, merged=merged, first=0)
    return write_synthetic_slice(folder / "slice.gguf", shape)


def random_pairs(count: int) -> tuple[np.ndarray, IntArray]:
    random = np.random.default_rng(count)
    return random.standard_normal((count, 256), dtype=np.float32), random.integers(FIRST, LAST, count).astype(np.int32)


@pytest.mark.parametrize("pairs", [1, 2, 7, 8, 9, 64, 300])
def test_q8_rows_give_the_bits_of_float32_rows(kernel: GgmlKernel, pairs: int) -> None:
    rows, experts = random_pairs(pairs)
    assert kernel.block_type is not None

    assert np.array_equal(
        kernel.compute(quantize_rows(rows, kernel.block_type), experts), kernel.compute(rows, experts)
    )


def test_a_group_of_one_expert_gives_the_same_bits_among_others_and_in_any_order(kernel: GgmlKernel) -> None:
    rows, _ = random_pairs(20)
    others, other_experts = random_pairs(13)
    experts = np.full(20, 7, np.int32)
    other_experts[other_experts == 7] = 8
    order = np.random.default_rng(1).permutation(33)

    alone = kernel.compute(rows, experts)
    mixed = kernel.compute(np.concatenate([rows, others])[order], np.concatenate([experts, other_experts])[order])

    assert np.array_equal(mixed[np.argsort(order)][:20], alone)


def test_it_agrees_with_double_precision_arithmetic(kernel: GgmlKernel, slice_path: Path) -> None:
    rows, experts = random_pairs(12)
    with SliceFile.open(slice_path) as file:
        weights = {
            role: gguf.quants.dequantize(tensor.data, gguf.GGMLQuantizationType(tensor.ggml_type))
            .reshape(tensor.ne[2], tensor.ne[1], tensor.ne[0])
            .astype(np.float64)
            for role, tensor in file.tensors.items()
        }
    expected = []
    for row, expert in zip(rows.astype(np.float64), experts - FIRST, strict=True):
        gate, up = weights["gate"][expert] @ row, weights["up"][expert] @ row
        expected.append(weights["down"][expert] @ (gate / (1 + np.exp(-gate)) * up))

    error = np.square(kernel.compute(rows, experts) - np.array(expected)).sum() / np.square(expected).sum()

    # Rows and inner activations are rounded to eight bits each; measured here: 3.1e-4.
    assert error < 1e-3


@pytest.mark.parametrize(
    ("rows", "experts"),
    [
        (np.zeros((2, 256), np.float32), np.array([4], np.int32)),
        (np.zeros((0, 256), np.float32), np.array([], np.int32)),
        (np.zeros((1, 256), np.float32), np.array([3], np.int32)),
        (np.zeros((1, 256), np.float32), np.array([20], np.int32)),
        (np.zeros((1, 255), np.float32), np.array([4], np.int32)),
        (np.zeros((1, 259), np.uint8), np.array([4], np.int32)),
    ],
)
def test_it_refuses_rows_that_do_not_fit(kernel: GgmlKernel, rows: np.ndarray, experts: IntArray) -> None:
    with pytest.raises(RowsError):
        kernel.compute(rows, experts)


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("kind", ["Q4_K", "Q6_K", "Q8_0", "MXFP4"])
def test_merged_and_separate_tensors_of_each_type_compute(
    tmp_path: Path, runtime: CpuRuntime, kind: str, merged: bool
) -> None:
    piece = piece_of(tmp_path, kind, merged=merged)
    rows = np.random.default_rng(2).standard_normal((9, 256), dtype=np.float32)
    experts = np.arange(9, dtype=np.int32) % 8

    with GgmlKernel.open(piece, runtime) as kernel:
        result = kernel.compute(rows, experts)

    assert np.isfinite(result).all()
    assert np.abs(result).max() > 0


# The blocks that ggml 0.25.3 takes for weights of each type: Q8_K and Q8_0 travel as they are, others as float32.
WANTED = {
    "Q4_0": TYPE_Q8_0,
    "Q5_0": TYPE_Q8_0,
    "Q8_0": TYPE_Q8_0,
    "IQ4_NL": TYPE_Q8_0,
    "MXFP4": TYPE_Q8_0,
    "Q2_K": TYPE_Q8_K,
    "Q3_K": TYPE_Q8_K,
    "Q4_K": TYPE_Q8_K,
    "Q5_K": TYPE_Q8_K,
    "Q6_K": TYPE_Q8_K,
    "IQ4_XS": TYPE_Q8_K,
    "Q4_1": None,
    "Q5_1": None,
    "F16": None,
    "BF16": None,
    "F32": None,
}


@pytest.mark.parametrize(("kind", "block_type"), WANTED.items())
def test_rows_that_travel_as_blocks_give_the_bits_of_float32_rows_for_every_type(
    tmp_path: Path, runtime: CpuRuntime, kind: str, block_type: int | None
) -> None:
    piece = piece_of(tmp_path, kind)
    random = np.random.default_rng(5)
    # Ordinary rows, large and very small ones, zeros, and one in which a single value stands out.
    rows = random.standard_normal((200, 256), dtype=np.float32) * np.float32(10) ** random.integers(-6, 2, (200, 1))
    rows = rows.astype(np.float32)
    rows[0], rows[1, 17] = 0, 100
    experts = random.integers(0, 8, 200).astype(np.int32)

    with GgmlKernel.open(piece, runtime) as kernel:
        assert kernel.block_type == block_type
        if block_type is None:
            with pytest.raises(RowsError):
                kernel.compute(quantize_rows(rows, TYPE_Q8_0), experts)
        else:
            typed = kernel.compute(quantize_rows(rows, block_type), experts)
            assert np.array_equal(typed, kernel.compute(rows, experts))
            assert np.abs(typed).max() > 0


def test_a_layer_whose_gate_and_up_want_different_blocks_takes_float32_rows(
    tmp_path: Path, runtime: CpuRuntime
) -> None:
    with GgmlKernel.open(piece_of(tmp_path, "Q4_K", up="Q8_0"), runtime) as kernel:
        assert kernel.block_type is None


def test_a_kernel_class_names_version_and_features() -> None:
    assert kernel_class_name().startswith("ggml-0.25.3/")
