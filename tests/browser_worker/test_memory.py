"""What a slice takes in a tab: itself and little more, at the largest budget that the page offers."""

from pathlib import Path

import numpy as np
import pytest

from inference.benchmarks.wasm_page import WasmPage
from inference.kernel import CpuRuntime, GgmlKernel
from inference.synthetic_slice import SliceShape, write_synthetic_slice

pytestmark = pytest.mark.browser

N_EMBD, N_FF, EXPERTS, FIRST = 3072, 1024, 64, 5  # the 122B's; 340 MB
# Requests are computed 32 pairs at a time: what they need does not grow with them. 32 slices stay below 64 MiB.
MOST_BESIDE = 2 << 20


def test_340_megabytes_of_experts_take_their_size_and_little_more(page: WasmPage, tmp_path: Path) -> None:
    shape = SliceShape(N_EMBD, N_FF, EXPERTS, {"gate": 12, "up": 12, "down": 12}, first=FIRST)
    path = write_synthetic_slice(tmp_path / "slice.gguf", shape)
    size = path.stat().st_size
    rows = np.random.default_rng(1).standard_normal((200, N_EMBD), dtype=np.float32)
    experts = np.random.default_rng(2).integers(FIRST, FIRST + EXPERTS, 200).astype(np.int32)

    opened = page.open(path)
    answer = page.compute(rows, experts)
    runtime = CpuRuntime(1)
    with GgmlKernel.open(path, runtime) as oracle:
        expected = oracle.compute(rows[:3], experts[:3])
    runtime.close()

    assert size > 339_000_000
    assert opened - size < MOST_BESIDE
    assert page.memory_bytes() - size < MOST_BESIDE
    assert np.allclose(answer[:3], expected, atol=np.abs(expected).max() * 2e-3)
    path.unlink()
