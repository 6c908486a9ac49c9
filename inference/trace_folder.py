"""Keeps the folder of traces within its size: one folder for each start of a backbone, the oldest go first."""

import logging
import shutil
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

logger = logging.getLogger(__name__)


def make_room(folder: Path, most_bytes: int, *, alive: Collection[str] = ()) -> list[str]:
    """Removes the oldest starts' traces until all together have at most `most_bytes`; returns which.

    alive: names of folders that a living backbone writes; they stay and do not count. Backbones of one host start at
    once and share the folder: what another one removes meanwhile is gone, and that is all.
    """
    if not folder.is_dir():
        return []
    ended = [path for path in folder.iterdir() if path.is_dir() and path.name not in alive]
    ended.sort(key=_modified)
    sizes = {path: _size(path) for path in ended}
    total, removed = sum(sizes.values()), []
    for path in ended:
        if total <= most_bytes:
            break
        shutil.rmtree(path, onerror=_unless_gone)
        total -= sizes[path]
        removed.append(path.name)
        logger.info("the traces of start %s are removed: %d bytes", path.name, sizes[path])
    return removed


def _modified(path: Path) -> float:
    with suppress(FileNotFoundError):
        return path.stat().st_mtime
    return 0.0


def _size(folder: Path) -> int:
    """Bytes of its files that are still there."""
    total = 0
    with suppress(FileNotFoundError):
        for file in folder.rglob("*"):
            total += file.stat().st_size if file.is_file() else 0
    return total


def _unless_gone(_function: object, _path: str, found: tuple[type[BaseException], BaseException, object]) -> None:
    if not isinstance(found[1], FileNotFoundError):
        raise found[1]
