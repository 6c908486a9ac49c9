"""Keeps the folder of traces within its size: one folder for each start of a backbone, the oldest go first."""

import logging
import shutil
from collections.abc import Collection
from pathlib import Path

logger = logging.getLogger(__name__)


def make_room(folder: Path, most_bytes: int, *, alive: Collection[str] = ()) -> list[str]:
    """Removes the oldest starts' traces until all together have at most `most_bytes`; returns which.

    alive: names of folders that a living backbone writes; they stay and do not count.
    """
    if not folder.is_dir():
        return []
    ended = [path for path in folder.iterdir() if path.is_dir() and path.name not in alive]
    ended.sort(key=lambda path: path.stat().st_mtime)
    sizes = {path: sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) for path in ended}
    total, removed = sum(sizes.values()), []
    for path in ended:
        if total <= most_bytes:
            break
        shutil.rmtree(path)
        total -= sizes[path]
        removed.append(path.name)
        logger.info("the traces of start %s are removed: %d bytes", path.name, sizes[path])
    return removed
