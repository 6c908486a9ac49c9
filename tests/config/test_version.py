"""config/version.py: the changelog owns the version."""

import tomllib
from pathlib import Path

import pytest

from config.version import newest_version, version

ROOT = Path(__file__).resolve().parent.parent.parent


def test_the_newest_heading_is_the_version() -> None:
    assert newest_version("# Changelog\n\n## 1.2.3 (2026-05-06)\n\n## 1.2.2\n") == "1.2.3"


def test_the_project_file_says_the_same() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert project["version"] == version()


def test_a_changelog_without_versions_is_an_error() -> None:
    with pytest.raises(ValueError, match="heading"):
        newest_version("# Changelog\n")
