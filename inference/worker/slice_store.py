"""Slices on disk: where they lie, which are whole, which may go. One folder per build, one file per claimed range.

A file named `.gguf` was verified in full before it got that name; `.part` holds what a download has so far.
"""

import re
import shutil
from collections.abc import Collection
from pathlib import Path

from inference.worker.market_client import Claim

SLICE_NAME = re.compile(r"layer-\d+-experts-\d+-\d+\.(gguf|part)")


class SliceStore:
    """The slices of one worker below `root`. Only files that carry a slice's name are ever deleted."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, claim: Claim) -> Path:
        """The place of the whole slice of a claim; claims of the same range share it."""
        return self.root / claim.build / f"layer-{claim.layer}-experts-{claim.first}-{claim.last}.gguf"

    def partial_path(self, claim: Claim) -> Path:
        """The place of a download that is not finished."""
        return self.path(claim).with_suffix(".part")

    def free_bytes(self) -> int:
        """Room on the disk that holds the slices."""
        self.root.mkdir(parents=True, exist_ok=True)
        return shutil.disk_usage(self.root).free

    def prune(self, keep: Collection[Claim]) -> list[Path]:
        """Delete the slices and partial downloads of ranges that are not claimed; returns what went."""
        wanted = {self.path(claim) for claim in keep} | {self.partial_path(claim) for claim in keep}
        removed = []
        for path in sorted(self.root.glob("*/layer-*")):
            if path not in wanted and SLICE_NAME.fullmatch(path.name):
                path.unlink(missing_ok=True)
                removed.append(path)
        for folder in sorted(self.root.glob("*/")):
            if not any(folder.iterdir()):
                folder.rmdir()
        return removed
