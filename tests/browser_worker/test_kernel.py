"""The WASM kernel in Chromium against ggml's kernel: every type, both row forms, odd counts, extremes, strangers."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from inference.benchmarks.wasm_page import WasmPage
from inference.challenge import row_errors
from inference.gguf_index import Role
from inference.kernel import CpuRuntime, GgmlKernel, quantize_rows
from inference.rows import Float32Array, IntArray, partial_sums
from inference.synthetic_slice import SliceShape, write_synthetic_slice

pytestmark = pytest.mark.browser

TYPES = {
    "F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 8, "Q4_K": 12, "Q5_K": 13, "Q6_K": 14, "IQ4_NL": 20, "IQ4_XS": 23,
    "BF16": 30, "MXFP4": 39,
}  # fmt: skip
ROLES: tuple[Role, ...] = ("gate", "up", "down")
N_EMBD, N_FF, EXPERTS, FIRST = 512, 256, 3, 5
# Float sums in another order: measured normalised error 3e-13 at most. Where that turns an int8 (or half float)
# rounding of an inner activation over, a row is further off: those rows are few and still below FLIPPED. A half float
# that rounds the other way moves less and happens more often.
SAME, SAME_HALF, FLIPPED = 1e-9, 1e-7, 1e-4


@pytest.fixture(scope="module")
def runtime() -> Iterator[CpuRuntime]:
    runtime = CpuRuntime(1)
    yield runtime
    runtime.close()


def rows_for(count: int, scale: float = 3.0) -> tuple[Float32Array, IntArray]:
    """Rows, and experts in turn."""
    rows = np.random.default_rng(count).standard_normal((count, N_EMBD), dtype=np.float32) * np.float32(scale)
    return rows, (FIRST + np.arange(count) % EXPERTS).astype(np.int32)


def slice_of(folder: Path, gate: str, up: str, down: str, *, merged: bool = False) -> Path:
    types = dict(zip(ROLES, (TYPES[gate], TYPES[up], TYPES[down]), strict=True))
    return write_synthetic_slice(folder / "slice.gguf", SliceShape(N_EMBD, N_FF, EXPERTS, types, merged, first=FIRST))


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("name", TYPES)
def test_each_type_gives_the_rows_of_ggml(
    page: WasmPage, runtime: CpuRuntime, tmp_path: Path, name: str, merged: bool
) -> None:
    path = slice_of(tmp_path, name, name, name, merged=merged)
    same = SAME_HALF if name in ("F16", "BF16") else SAME
    page.open(path)

    with GgmlKernel.open(path, runtime) as oracle:
        for count in (1, 3, 7, 100):
            rows, experts = rows_for(count)
            expected = oracle.compute(rows, experts)
            errors = row_errors(page.compute(rows, experts), expected)

            assert np.median(errors) < same
            assert (errors > same).mean() <= 0.03
            assert errors.max() < FLIPPED
            if oracle.block_type is not None:
                typed = page.compute(quantize_rows(rows, oracle.block_type), experts)
                assert row_errors(typed, expected).max() < FLIPPED


@pytest.mark.parametrize(
    ("gate", "up", "down"), [("Q4_K", "Q4_K", "Q6_K"), ("Q4_K", "Q8_0", "F16"), ("MXFP4", "MXFP4", "BF16")]
)
def test_types_may_differ_between_the_matrices(
    page: WasmPage, runtime: CpuRuntime, tmp_path: Path, gate: str, up: str, down: str
) -> None:
    path = slice_of(tmp_path, gate, up, down)
    page.open(path)
    rows, experts = rows_for(9)

    with GgmlKernel.open(path, runtime) as oracle:
        assert row_errors(page.compute(rows, experts), oracle.compute(rows, experts)).max() < FLIPPED


@pytest.mark.parametrize("name", ["Q4_K", "Q8_0", "F16"])
@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-4, 1e4])
def test_tiny_and_huge_rows_agree(page: WasmPage, runtime: CpuRuntime, tmp_path: Path, name: str, scale: float) -> None:
    path = slice_of(tmp_path, name, name, name)
    page.open(path)
    rows, experts = rows_for(5, scale)

    with GgmlKernel.open(path, runtime) as oracle:
        expected = oracle.compute(rows, experts)

    answer = page.compute(rows, experts)
    finite = np.isfinite(expected).all(axis=1)
    assert row_errors(answer[finite], expected[finite]).max(initial=0) < FLIPPED or np.abs(expected).max() < 1e-30


def test_many_pairs_share_one_call(page: WasmPage, runtime: CpuRuntime, tmp_path: Path) -> None:
    path = slice_of(tmp_path, "Q4_K", "Q4_K", "Q6_K")
    page.open(path)
    rows, _ = rows_for(300)
    experts = np.random.default_rng(0).integers(FIRST, FIRST + EXPERTS, 300).astype(np.int32)

    with GgmlKernel.open(path, runtime) as oracle:
        errors = row_errors(page.compute(rows, experts), oracle.compute(rows, experts))

    # The limits of docs/decisions and of audits: few rows off, none far.
    assert (errors > 1e-5).mean() <= 0.02
    assert errors.max() < 2e-2


@pytest.mark.parametrize("as_half", [False, True])
def test_partial_sums_are_those_of_the_python_worker(
    page: WasmPage, runtime: CpuRuntime, tmp_path: Path, as_half: bool
) -> None:
    path = slice_of(tmp_path, "Q8_0", "Q8_0", "Q8_0")
    page.open(path)
    rows, _ = rows_for(4)
    pairs = np.array([[0, 5], [1, 6], [0, 7], [3, 5], [3, 6]], np.uint16)
    weights = np.array([0.5, 0.25, 0.125, 1.0, -2.0], np.float32)

    with GgmlKernel.open(path, runtime) as oracle:
        values = oracle.compute(rows[pairs[:, 0]], pairs[:, 1].astype(np.int32))
    expected = partial_sums(values, pairs[:, 0], weights, 4, np.float16 if as_half else np.float32)

    answer = page.sums(rows, pairs, weights, as_half=as_half)
    assert np.abs(answer - expected).max() <= (2e-2 if as_half else 1e-4)
    assert not answer[2].any()


@pytest.mark.parametrize("experts", [[4, 5], [5, 8], [65535, 5]])
def test_experts_outside_the_slice_are_refused(page: WasmPage, tmp_path: Path, experts: list[int]) -> None:
    page.open(slice_of(tmp_path, "Q4_K", "Q4_K", "Q4_K"))
    rows, _ = rows_for(2)

    with pytest.raises(Exception, match="outside the slice"):
        page.compute(rows, np.array(experts, np.int32))


def test_rows_of_another_width_are_refused(page: WasmPage, tmp_path: Path) -> None:
    page.open(slice_of(tmp_path, "Q4_K", "Q4_K", "Q4_K"))

    with pytest.raises(Exception, match="do not fit"):
        page.compute(np.zeros((1, N_EMBD - 1), np.float32), np.array([FIRST], np.int32))


def test_a_file_that_is_no_slice_is_refused(page: WasmPage, tmp_path: Path) -> None:
    junk = tmp_path / "junk"
    for data in (b"", b"GGUF", b"x" * 100, slice_of(tmp_path, "Q8_0", "Q8_0", "Q8_0").read_bytes()[:5000]):
        junk.write_bytes(data)

        with pytest.raises(Exception, match=r"GGUF|cut off|missing"):
            page.open(junk)


def test_a_page_that_is_not_isolated_computes_in_one_thread(page: WasmPage) -> None:
    page.start({"gpu": False})

    assert not page.started["isolated"]
    assert page.started["threads"] == 1


@pytest.mark.parametrize("size", [0, 1, 55, 56, 63, 64, 65, 1000, 300_000])
def test_digests_are_those_of_hashlib(page: WasmPage, size: int) -> None:
    data = np.random.default_rng(size).bytes(size)

    assert page.digest(data) == hashlib.sha256(data).hexdigest()
