"""The progress bar."""

import io
import sys

import pytest

from inference.worker.progress import progress_bar
from tests.inference.worker.builders import a_claim


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_what_comes_and_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)

    with progress_bar(a_claim()) as show:
        show(0, 45_000)
        show(45_000, 45_000)

    assert "layer 3, experts 8-14" in terminal.getvalue()
    assert "/45.0k" in terminal.getvalue()


def test_a_log_file_gets_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar(a_claim()) as show:
        show(10_000, 45_000)

    assert capsys.readouterr().err == ""
