"""The numpy kernel against float64 arithmetic written out, and against ggml on the demo model's experts."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from gguf.constants import GGMLQuantizationType as Type
from gguf.quants import dequantize

from inference import ggml
from inference.errors import NotASlice, UnknownType
from inference.gguf_index import Role, open_index
from inference.kernel import CpuRuntime, GgmlKernel, quantize_rows
from inference.numpy_kernel import BLOCK_32_TYPES, NumpyKernel, computable_types, round_like_ggml
from inference.rows import TYPE_Q8_0, TYPE_Q8_K, RowsError, dequantize_wire
from inference.slices import SliceFile, plan_slice, write_slice
from tests.inference.slice_builders import N_EMBD, N_FF, built_slice, random_rows

DEMO_MODEL = Path(__file__).parents[2] / "models" / "qwen35moe-demo-q4_k_m.gguf"

# Both kernels round the inputs of a product to int8 in the same way, but sum floats in another order; now and then such
# a last bit turns a rounding of the activations over. Measured on the demo model, Q4_K, 2,000 pairs, per row: median
# 4e-7, 0.15% above 1e-5, largest 2.7e-3.
ROW_LIMIT = 2e-2
USUAL_ROW_LIMIT = 1e-5
UNUSUAL_SHARE = 0.02


def float64_expert(slice_file: SliceFile, row: npt.NDArray[np.float32], expert: int) -> npt.NDArray[np.float64]:
    """One pair, as the formula says, in float64; only the int8 rounding of a product's input is the kernel's own."""

    def product(role: Role, x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        kind, (n_in, n_out, _), data = slice_file.tensors[role]
        weights = dequantize(data[expert - slice_file.first].reshape(n_out, -1), Type(kind))
        rounded = round_like_ggml(x.astype(np.float32)[None], Type(kind))[0]
        result: npt.NDArray[np.float64] = weights.reshape(n_out, n_in).astype(np.float64) @ rounded.astype(np.float64)
        return result

    x = row.astype(np.float64)
    gate, up = product("gate", x), product("up", x)
    return product("down", gate / (1 + np.exp(-gate)) * up)


def assert_alike(actual: npt.NDArray[np.floating], expected: npt.NDArray[np.floating]) -> None:
    """Row by row: all within ROW_LIMIT, nearly all within USUAL_ROW_LIMIT."""
    errors = np.linalg.norm(actual - expected, axis=1) / np.linalg.norm(expected, axis=1)
    assert errors.max() < ROW_LIMIT
    assert (errors > USUAL_ROW_LIMIT).mean() <= UNUSUAL_SHARE


@pytest.mark.parametrize("kind", [Type.F32, Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0])
def test_it_equals_float64_arithmetic(kind: Type) -> None:
    slice_file, rows = built_slice(kind=kind), random_rows(50)
    experts = np.resize(np.array([5, 7, 6, 5, 7], np.int32), 50)
    expected = np.stack([float64_expert(slice_file, row, int(e)) for row, e in zip(rows, experts, strict=True)])

    outputs = NumpyKernel(slice_file).compute(rows, experts)

    assert outputs.dtype == np.float32
    assert_alike(outputs, expected)


@pytest.mark.parametrize("kind", [Type.F32, Type.F16, Type.Q8_0, Type.Q4_0])
@pytest.mark.parametrize("merged", [False, True], ids=["separate", "merged"])
def test_it_agrees_with_ggml(kind: Type, merged: bool) -> None:
    slice_file, rows = built_slice(merged=merged, kind=kind), random_rows(50)
    experts = np.resize(np.array([7, 5, 6], np.int32), 50)
    runtime = CpuRuntime(threads=1)
    expected = GgmlKernel(slice_file, runtime).compute(rows, experts)

    outputs = NumpyKernel(slice_file).compute(rows, experts)

    runtime.close()
    assert_alike(outputs, expected)


@pytest.mark.parametrize("block_type", [TYPE_Q8_K, TYPE_Q8_0])
def test_it_rounds_rows_to_the_bits_of_ggml(block_type: int) -> None:
    rows = np.concatenate([random_rows(100), np.zeros((1, N_EMBD), np.float32)])
    weight_type = Type.Q4_K if block_type == TYPE_Q8_K else Type.Q8_0

    rounded = round_like_ggml(rows, weight_type)

    assert np.array_equal(rounded, dequantize_wire(quantize_rows(rows, block_type), block_type))


def test_it_knows_the_row_type_that_ggml_wants_for_every_weight_type() -> None:
    known = {name: rounding(Type[name]) for name in computable_types()}

    wanted = {name: Type(ggml.load().vec_dot_type(int(Type[name]))).name for name in known}
    assert {"Q4_K", "Q6_K", "Q8_0", "MXFP4", "F16"} <= set(known)
    assert known == {name: row_type.replace("Q8_1", "Q8_0") for name, row_type in wanted.items()}


def rounding(kind: Type) -> str:
    if kind in (Type.F32, Type.F16, Type.BF16):
        return kind.name
    return "Q8_0" if kind in BLOCK_32_TYPES else "Q8_K"


def test_a_merged_tensor_holds_gate_before_up() -> None:
    rows, experts = random_rows(4), np.array([6, 6, 5, 7], np.int32)
    expected = NumpyKernel(built_slice()).compute(rows, experts)

    outputs = NumpyKernel(built_slice(merged=True)).compute(rows, experts)

    assert np.array_equal(outputs, expected)


@pytest.mark.parametrize("block_type", [TYPE_Q8_K, TYPE_Q8_0])
def test_q8_rows_are_their_dequantised_values(block_type: int) -> None:
    kernel, experts = NumpyKernel(built_slice(kind=Type.F32)), np.array([5, 7, 6], np.int32)
    wire = quantize_rows(random_rows(3), block_type)

    outputs = kernel.compute(wire, experts)

    assert np.array_equal(outputs, kernel.compute(dequantize_wire(wire, block_type), experts))


def test_large_activations_do_not_overflow() -> None:
    rows = random_rows(2) * 100

    outputs = NumpyKernel(built_slice()).compute(rows.astype(np.float32), np.array([5, 6], np.int32))

    assert np.isfinite(outputs).all()


def test_it_keeps_dequantised_experts_within_its_bound() -> None:
    one_expert = 3 * N_EMBD * N_FF * 4
    kernel, rows, experts = NumpyKernel(built_slice(), 2 * one_expert), random_rows(3), np.array([5, 6, 7], np.int32)
    expected = NumpyKernel(built_slice()).compute(rows, experts)

    outputs = [kernel.compute(rows, experts) for _ in range(3)]

    assert all(np.array_equal(output, expected) for output in outputs)
    assert kernel.cached_bytes == 2 * one_expert


def test_it_keeps_the_expert_in_use_even_when_it_is_above_the_bound() -> None:
    kernel = NumpyKernel(built_slice(), cache_bytes=1)

    kernel.compute(random_rows(2), np.array([5, 7], np.int32))

    assert kernel.cached_bytes == 3 * N_EMBD * N_FF * 4


@pytest.mark.parametrize(
    ("rows", "experts"),
    [
        (random_rows(2), [5]),
        (random_rows(1), [4]),
        (random_rows(1), [8]),
        (random_rows(1, 128), [5]),
        (random_rows(0), []),
        (np.zeros((1, 259), np.uint8), [5]),
        (np.zeros((1, 256), np.float64), [5]),
    ],
    ids=["fewer experts", "expert below", "expert above", "narrow row", "nothing", "odd q8 row", "float64"],
)
def test_it_refuses_rows_and_experts_that_do_not_fit(rows: npt.NDArray[np.float32], experts: list[int]) -> None:
    kernel = NumpyKernel(built_slice())

    with pytest.raises(RowsError):
        kernel.compute(rows, np.array(experts, np.int32))


def test_it_refuses_a_type_that_gguf_cannot_dequantise() -> None:
    slice_file = built_slice()
    slice_file.tensors["up"] = slice_file.tensors["up"]._replace(ggml_type=int(Type.Q8_K))

    with pytest.raises(UnknownType, match="ggml kernel"):
        NumpyKernel(slice_file)


def test_it_refuses_experts_without_a_gate() -> None:
    slice_file = built_slice()
    del slice_file.tensors["gate"]

    with pytest.raises(NotASlice):
        NumpyKernel(slice_file)


@pytest.mark.parametrize("quantised", [False, True], ids=["f32 rows", "q8 rows"])
def test_it_agrees_with_ggml_on_the_demo_model(tmp_path: Path, quantised: bool) -> None:
    index = open_index(DEMO_MODEL)
    write_slice(plan_slice(index, index.offered_layers[1], 3, 11), tmp_path / "slice.gguf")
    rows = random_rows(400, index.n_embd)
    experts = np.random.default_rng(2).integers(3, 11, 400).astype(np.int32)
    sent = quantize_rows(rows, TYPE_Q8_K) if quantised else rows
    runtime = CpuRuntime(threads=1)

    with GgmlKernel.open(tmp_path / "slice.gguf", runtime) as exact, NumpyKernel.open(tmp_path / "slice.gguf") as ours:
        expected, outputs = exact.compute(sent, experts), ours.compute(sent, experts)
    runtime.close()

    assert_alike(outputs, expected)
