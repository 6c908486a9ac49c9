"""The committed kernel is what its sources give."""

from pathlib import Path

from frontend.browser_worker.build import WASM, build

MOST_BYTES = 64 * 1024


def test_a_rebuild_gives_the_committed_bytes(tmp_path: Path) -> None:
    built = tmp_path / "kernel.wasm"

    build(built)

    assert built.read_bytes() == WASM.read_bytes(), "run `make wasm` and commit the result"


def test_the_kernel_is_small() -> None:
    assert WASM.stat().st_size < MOST_BYTES
