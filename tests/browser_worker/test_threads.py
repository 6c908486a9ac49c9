"""Threads over shared memory, on a cross-origin isolated page, give the bits of one thread."""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from inference.benchmarks.wasm_page import WasmPage
from inference.kernel import q8_block_type, quantize_rows
from inference.rows import ByteArray, Float32Array, IntArray
from inference.synthetic_slice import SliceShape, write_synthetic_slice

pytestmark = pytest.mark.browser

TYPES = {"Q4_K": 12, "Q5_K": 13, "Q6_K": 14, "IQ4_XS": 23, "Q8_0": 8, "F16": 1}
N_EMBD, N_FF, EXPERTS, FIRST = 512, 256, 3, 5
THREADS = 3
GONE_SECONDS = 60.0


ALONE, TOGETHER = {"threads": 1, "gpu": False}, {"threads": THREADS, "gpu": False}


@pytest.fixture(scope="module")
def isolated(chromium: str) -> Iterator[WasmPage]:
    with WasmPage(isolated=True) as page:
        yield page


@pytest.fixture
def threaded(isolated: WasmPage) -> WasmPage:
    isolated.start(TOGETHER)
    return isolated


def rows_for(count: int) -> tuple[Float32Array, IntArray]:
    rows = np.random.default_rng(count).standard_normal((count, N_EMBD), dtype=np.float32)
    return rows, (FIRST + np.arange(count) % EXPERTS).astype(np.int32)


def slice_of(folder: Path, kind: int) -> Path:
    shape = SliceShape(N_EMBD, N_FF, EXPERTS, {"gate": kind, "up": kind, "down": kind}, first=FIRST)
    return write_synthetic_slice(folder / f"{kind}.gguf", shape)


def test_an_isolated_page_starts_the_threads_that_are_asked_for(threaded: WasmPage) -> None:
    started = threaded.started

    assert started["isolated"]
    assert started["threads"] == THREADS


def test_half_of_the_processors_compute_unless_told_otherwise(isolated: WasmPage) -> None:
    processors = isolated.run("() => navigator.hardwareConcurrency")

    isolated.start({"gpu": False})

    assert isolated.started["threads"] == max(1, min(8, processors // 2))


@pytest.mark.parametrize("name", TYPES)
def test_threads_give_the_bits_of_one_thread(isolated: WasmPage, tmp_path: Path, name: str) -> None:
    path = slice_of(tmp_path, TYPES[name])
    requests: list[tuple[Float32Array | ByteArray, IntArray]] = [rows_for(count) for count in (1, 2, 7, 100)]
    block_type = q8_block_type(TYPES[name], TYPES[name])
    if block_type is not None:
        rows, experts = rows_for(5)
        requests.append((quantize_rows(rows, block_type), experts))
    answers = []

    for options in (ALONE, TOGETHER):
        isolated.start(options)
        isolated.open(path)
        answers.append([isolated.compute(rows, experts) for rows, experts in requests])

    for alone, together in zip(*answers, strict=True):
        assert np.array_equal(together.view(np.uint32), alone.view(np.uint32))


def test_an_answer_does_not_depend_on_what_is_asked_with_it(threaded: WasmPage, tmp_path: Path) -> None:
    threaded.open(slice_of(tmp_path, TYPES["Q4_K"]))
    rows, experts = rows_for(40)
    together = threaded.compute(rows, experts)

    for row in (0, 13, 39):
        alone = threaded.compute(rows[row : row + 1], experts[row : row + 1])

        assert np.array_equal(alone[0].view(np.uint32), together[row].view(np.uint32))


def test_many_slices_after_each_other_leave_the_threads_well(threaded: WasmPage, tmp_path: Path) -> None:
    path = slice_of(tmp_path, TYPES["Q6_K"])
    rows, experts = rows_for(3)
    threaded.open(path)
    expected = threaded.compute(rows, experts)

    for _ in range(20):
        threaded.open(path)

        assert np.array_equal(threaded.compute(rows, experts), expected)


def test_when_a_thread_is_gone_the_caller_computes_alone(threaded: WasmPage, tmp_path: Path) -> None:
    path = slice_of(tmp_path, TYPES["Q4_K"])
    rows, experts = rows_for(7)
    threaded.open(path)
    expected = threaded.compute(rows, experts)

    threaded.ask("loseThread")
    deadline = time.monotonic() + GONE_SECONDS
    while threaded.ask("threads") > 1 and time.monotonic() < deadline:
        answer = threaded.compute(rows, experts)

        assert np.array_equal(answer.view(np.uint32), expected.view(np.uint32))

    assert threaded.ask("threads") == 1
    assert np.array_equal(threaded.compute(rows, experts), expected)
    threaded.open(path)
    assert np.array_equal(threaded.compute(rows, experts), expected)
