"""WebGPU in Chromium, on an adapter that the processor plays, against WASM: each type, loss of the card, its memory."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from inference.benchmarks.wasm_page import SOFTWARE_GPU, WasmPage
from inference.challenge import row_errors
from inference.gguf_index import Role
from inference.kernel import quantize_rows
from inference.rows import Float32Array, IntArray
from inference.synthetic_slice import SliceShape, write_synthetic_slice

pytestmark = pytest.mark.browser

Q4_K, Q5_K, Q6_K, Q8_0, Q8_K = 12, 13, 14, 8, 15
N_EMBD, N_FF, EXPERTS, FIRST = 512, 256, 3, 5
# Floats in another order: measured 3e-13 at most. Few rows where an int8 rounding of an inner activation turns over.
SAME, FLIPPED = 1e-9, 1e-4
CARD, WASM = {"threads": 1, "gpu": "any"}, {"threads": 1, "gpu": False}


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[WasmPage]:
    with WasmPage(arguments=SOFTWARE_GPU) as page:
        yield page


@pytest.fixture
def card(browser: WasmPage) -> WasmPage:
    browser.start(CARD)
    assert browser.started["gpu"], "Chromium has no WebGPU adapter"
    return browser


def rows_for(count: int) -> tuple[Float32Array, IntArray]:
    rows = np.random.default_rng(count).standard_normal((count, N_EMBD), dtype=np.float32) * np.float32(3)
    return rows, (FIRST + np.arange(count) % EXPERTS).astype(np.int32)


def slice_of(folder: Path, gate: int, down: int, *, merged: bool = False) -> Path:
    types: dict[Role, int] = {"gate": gate, "up": gate, "down": down}
    return write_synthetic_slice(folder / "slice.gguf", SliceShape(N_EMBD, N_FF, EXPERTS, types, merged, first=FIRST))


@pytest.mark.parametrize(
    ("gate", "down", "merged"), [(Q4_K, Q4_K, False), (Q4_K, Q6_K, True), (Q5_K, Q5_K, True), (Q6_K, Q6_K, False)]
)
def test_a_card_gives_the_rows_of_wasm(browser: WasmPage, tmp_path: Path, gate: int, down: int, merged: bool) -> None:
    path = slice_of(tmp_path, gate, down, merged=merged)
    requests = [rows_for(count) for count in (1, 3, 7, 100)]
    answers = []

    for options in (WASM, CARD):
        browser.start(options)
        browser.open(path)
        answers.append([browser.compute(rows, experts) for rows, experts in requests])
        answers[-1].append(browser.compute(quantize_rows(requests[2][0], Q8_K), requests[2][1]))

    assert browser.ask("isOnCard")
    for expected, answer in zip(*answers, strict=True):
        errors = row_errors(answer, expected)
        assert np.median(errors) < SAME
        assert (errors > SAME).mean() <= 0.03
        assert errors.max() < FLIPPED


def test_the_worker_says_which_kernel_computes(card: WasmPage, tmp_path: Path) -> None:
    before = card.ask("kernelClass")
    card.open(slice_of(tmp_path, Q4_K, Q4_K))
    with_card = card.ask("kernelClass")
    card.ask("loseCard")

    assert before.startswith("wasm-")
    assert with_card.startswith("webgpu-")
    assert card.ask("kernelClass") == before


def test_an_adapter_that_the_processor_plays_is_left_alone(browser: WasmPage) -> None:
    browser.start({"threads": 1})

    assert not browser.started["gpu"]


def test_types_that_the_card_does_not_know_stay_in_wasm(card: WasmPage, tmp_path: Path) -> None:
    card.open(slice_of(tmp_path, Q8_0, Q8_0))
    rows, experts = rows_for(2)

    assert not card.ask("isOnCard")
    assert np.isfinite(card.compute(rows, experts)).all()


def test_a_lost_card_leaves_the_work_to_wasm(card: WasmPage, tmp_path: Path) -> None:
    path = slice_of(tmp_path, Q4_K, Q6_K)
    rows, experts = rows_for(5)
    card.open(path)
    before = card.compute(rows, experts)

    card.ask("loseCard")
    after = card.compute(rows, experts)

    assert not card.ask("isOnCard")
    assert row_errors(after, before).max() < FLIPPED
    card.open(path)
    assert not card.ask("isOnCard")
    assert np.array_equal(card.compute(rows, experts), after)


def test_a_card_that_is_lost_during_a_request_costs_no_answer(card: WasmPage, tmp_path: Path) -> None:
    card.open(slice_of(tmp_path, Q4_K, Q4_K))
    rows, experts = rows_for(60)
    expected = card.compute(rows, experts)

    answer = card.compute_while("loseCard", rows, experts)

    assert row_errors(answer, expected).max() < FLIPPED


def test_the_memory_of_a_dropped_slice_is_given_back(card: WasmPage, tmp_path: Path) -> None:
    path = slice_of(tmp_path, Q4_K, Q4_K)
    card.open(path)
    card.compute(*rows_for(1))
    card.ask("closeSlice")
    without = card.ask("cardBuffers")

    for _ in range(3):
        card.open(path)
        card.compute(*rows_for(1))
        held = card.ask("cardBuffers")
        card.ask("closeSlice")

        assert held == without + 3 * EXPERTS
        assert card.ask("cardBuffers") == without


def test_wasm_keeps_no_copy_of_what_the_card_has(card: WasmPage, tmp_path: Path) -> None:
    shape = SliceShape(1024, 512, 8, {"gate": Q4_K, "up": Q4_K, "down": Q4_K}, first=FIRST)
    path = write_synthetic_slice(tmp_path / "slice.gguf", shape)

    held = card.open(path)

    assert card.ask("isOnCard")
    assert held < path.stat().st_size / 2
