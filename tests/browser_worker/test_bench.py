"""`bench kernel` measures both sides in the same run."""

from pathlib import Path

import pytest

from inference.benchmarks.kernel import GOAL, kernel

pytestmark = pytest.mark.browser


def test_a_quick_run_gives_every_case_with_its_peer(chromium: str, tmp_path: Path) -> None:
    results = [
        result.to_json() for result in kernel(tmp_path, quick=True, threads=1, progress=lambda share, text: None)
    ]

    assert [result["case"] for result in results][:3] == [
        "wasm/Q4_K/1thread",
        "wasm/Q4_K/1thread/batch=8",
        "wasm/Q4_K/1thread/batch=32",
    ]
    assert all(result["value"] > 0 and result["peer_value"] > 0 and result["ratio"] > 0 for result in results)
    assert results[0]["goal"] == GOAL
    assert [result["per_row"] for result in results if result["case"].endswith("1thread")] == [1, 1, 1]
    assert results[-1]["case"] == "wasm/sha256"
