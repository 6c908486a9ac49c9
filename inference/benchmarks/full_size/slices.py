"""All slices of a placement, cut by several processes before the workers start: 71 GB at the full size."""

import multiprocessing
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from inference.benchmarks.rig.crowd import slice_path
from inference.gguf_index import ModelIndex
from inference.slices import plan_slice, write_slice
from inference.verify.local_swarm import Range


@contextmanager
def cut(index: ModelIndex, held: Sequence[tuple[Range, ...]], folder: Path, processes: int) -> Iterator[Path]:
    """The folder, with a file for every range; gone afterwards, because the next placement needs the room."""
    folder.mkdir(parents=True)
    try:
        ranges = [one for ranges in held for one in ranges]
        with multiprocessing.get_context("fork").Pool(processes, _adopt, (index, folder)) as pool:
            for _ in pool.imap_unordered(_cut, ranges):
                pass
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


_index: ModelIndex
_folder: Path


def _adopt(index: ModelIndex, folder: Path) -> None:
    global _index, _folder
    _index, _folder = index, folder


def _cut(held: Range) -> None:
    write_slice(plan_slice(_index, *held), slice_path(_folder, held))
