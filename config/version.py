"""The version of this tree: the newest heading of CHANGELOG.md, the one place where it is written for people."""

import re
from pathlib import Path

CHANGELOG = Path(__file__).resolve().parent.parent / "CHANGELOG.md"


def newest_version(changelog: str) -> str:
    """The first `## X.Y.Z` heading; raises ValueError when there is none."""
    found = re.search(r"^## (\d+\.\d+\.\d+)\b", changelog, flags=re.MULTILINE)
    if found is None:
        raise ValueError("CHANGELOG.md has no heading of the form `## X.Y.Z`")
    return found[1]


def version() -> str:
    return newest_version(CHANGELOG.read_text())
