"""Slices on disk."""

from pathlib import Path

from inference.worker.slice_store import SliceStore
from tests.inference.worker.builders import a_claim


def a_file(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    return path


def test_the_path_names_build_layer_and_experts(tmp_path: Path) -> None:
    store = SliceStore(tmp_path)

    path = store.path(a_claim(build="cafe", layer=3, first=8, last=15))

    assert path == tmp_path / "cafe" / "layer-3-experts-8-15.gguf"


def test_pruning_keeps_what_is_claimed_and_drops_the_rest(tmp_path: Path) -> None:
    store, kept, other = SliceStore(tmp_path), a_claim(), a_claim(first=20, last=22)
    files = [a_file(store.path(kept)), a_file(store.partial_path(kept))]
    stale = [a_file(store.path(other)), a_file(store.partial_path(other)), a_file(store.path(a_claim(build="cd" * 8)))]

    removed = store.prune([kept])

    assert sorted(removed) == sorted(stale)
    assert all(path.exists() for path in files)
    assert [folder.name for folder in tmp_path.iterdir()] == [kept.build]


def test_pruning_touches_nothing_that_is_not_a_slice(tmp_path: Path) -> None:
    store = SliceStore(tmp_path)
    foreign = [a_file(tmp_path / "build" / "layer-of-paint.txt"), a_file(tmp_path / "build" / "thesis.gguf")]

    removed = store.prune([])

    assert removed == []
    assert all(path.exists() for path in foreign)


def test_pruning_an_absent_folder_is_fine(tmp_path: Path) -> None:
    assert SliceStore(tmp_path / "absent").prune([]) == []


def test_free_bytes_are_those_of_the_disk(tmp_path: Path) -> None:
    assert SliceStore(tmp_path / "new").free_bytes() > 0
