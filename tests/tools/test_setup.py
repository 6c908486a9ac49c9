"""tools/setup.sh and tools/setup_check.py: a build for another processor is noticed and compiled again."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tools import setup_check

ROOT = Path(__file__).resolve().parent.parent.parent
# A virtual environment whose python notes its arguments; its first N self-tests end with status 3 (killed by a signal).
FAKE_PYTHON = """#!/bin/bash
echo "$*" >> "$(dirname "$0")/calls"
case "$1" in
    tools/setup_check.py)
        left=$(cat "$(dirname "$0")/failures")
        [ "$left" -gt 0 ] || exit 0
        echo $((left - 1)) > "$(dirname "$0")/failures"
        exit 3;;
esac
"""


def run_setup(tmp_path: Path, failures: int) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Runs setup.sh on the fake environment; returns its result and the calls of python."""
    programs = tmp_path / "venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "python").write_text(FAKE_PYTHON)
    (programs / "python").chmod(0o755)
    (programs / "failures").write_text(str(failures))
    result = subprocess.run(
        [ROOT / "tools" / "setup.sh", tmp_path / "venv"],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    return result, (programs / "calls").read_text().splitlines()


def test_a_working_build_is_proven_once_and_kept(tmp_path: Path) -> None:
    result, calls = run_setup(tmp_path, failures=0)

    assert result.returncode == 0, result.stderr
    assert sum("setup_check.py" in call for call in calls) == 1
    assert not any("--no-cache-dir" in call for call in calls)


def test_a_build_for_another_processor_is_compiled_again_without_the_cache(tmp_path: Path) -> None:
    result, calls = run_setup(tmp_path, failures=1)

    assert result.returncode == 0, result.stderr
    rebuild = next(call for call in calls if "--no-cache-dir" in call)
    assert "--force-reinstall" in rebuild
    assert "--no-binary llama-cpp-python llama-cpp-python==" in rebuild
    assert calls[-1] == "tools/setup_check.py"


def test_a_build_that_never_works_fails_with_a_message(tmp_path: Path) -> None:
    result, _ = run_setup(tmp_path, failures=2)

    assert result.returncode == 1
    assert "does not work here" in result.stderr


def test_a_death_by_signal_is_told_from_a_plain_failure() -> None:
    assert setup_check.outcome(-signal.SIGILL) == setup_check.DIED_BY_SIGNAL
    assert setup_check.outcome(1) == 1
    assert setup_check.outcome(0) == 0


def test_the_matrix_product_of_this_machine_is_right() -> None:
    setup_check.prove_matrix_product()


def test_a_proof_that_fails_shows_what_it_wrote(capfd: pytest.CaptureFixture[str]) -> None:
    assert setup_check.prove_in_child("no-such-proof") == 1

    assert "KeyError" in capfd.readouterr().err
