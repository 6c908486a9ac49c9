"""docs/security.md: what it names is there."""

import re

from inference.hostile.run import Settings
from inference.hostile.sockets import FLOODS
from tests.e2e.processes import ROOT

PAGE = (ROOT / "docs" / "security.md").read_text()


def test_every_file_that_the_page_names_exists() -> None:
    named = {name for name in re.findall(r"`([a-z_]+/[\w/.]*)`", PAGE) if not name.startswith("/")}

    assert len(named) > 20
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_the_counts_of_the_page_are_those_of_the_run() -> None:
    settings = Settings(seed=1)

    for count in (settings.frames, settings.files, settings.requests, settings.idle, settings.flooding):
        assert f"{count:,}" in PAGE
    assert settings.frames + settings.files + settings.requests >= 100_000
    assert all(name.lower() in PAGE.lower() for name in FLOODS)
