"""The committed kernels are what their sources give."""

from pathlib import Path

from frontend.browser_worker.build import BUILDS, FOLDER, build

MOST_BYTES = 64 * 1024


def test_a_rebuild_gives_the_committed_bytes(tmp_path: Path) -> None:
    built = build(tmp_path)

    for path in built:
        assert path.read_bytes() == (FOLDER / path.name).read_bytes(), "run `make wasm` and commit the result"


def test_the_kernels_are_small() -> None:
    for name in BUILDS:
        assert (FOLDER / name).stat().st_size < MOST_BYTES
