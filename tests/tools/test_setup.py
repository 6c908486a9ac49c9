"""tools/setup.sh and tools/setup_check.py: a build for another processor is noticed and compiled again."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.refusal import refusal
from tools import setup_check

ROOT = Path(__file__).resolve().parent.parent.parent
# A virtual environment whose python notes its arguments; its first N self-tests end with status 3 (killed by a signal).
FAKE_PYTHON = """#!/bin/bash
words=("$@")
for place in "${!words[@]}"; do  # a list through a pipe: what stands in it
    case "${words[$place]}" in /dev/fd/*) words[$place]=$(tr -s ' \\\\\n' ' ' < "${words[$place]}");; esac
done
echo "${words[*]}" >> "$(dirname "$0")/calls"
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


def test_nothing_is_installed_whose_digest_does_not_stand_in_a_lock_file(tmp_path: Path) -> None:
    _, calls = run_setup(tmp_path, failures=1)

    installs = [call for call in calls if " install " in call]
    assert len(installs) == 3
    assert all("--require-hashes" in call for call in installs)
    # pip first: an old one would compile llama-cpp-python again instead of taking what it keeps.
    assert re.search(r"-r pip==\S+ --hash=sha256:[0-9a-f]{64}", installs[0])


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_every_package_of_a_lock_file_has_one_version_and_digests(name: str) -> None:
    text = re.sub(r"^\s*#.*\n", "", (ROOT / name).read_text(), flags=re.MULTILINE)
    entries = text.replace("\\\n", " ").splitlines()

    assert len(entries) > 50
    for entry in entries:
        assert re.match(r"[a-z0-9._-]+==\S+( ; .*?)?\s+--hash=sha256:[0-9a-f]{64}", entry), entry[:80]


def test_a_build_for_another_processor_is_compiled_again_without_the_cache(tmp_path: Path) -> None:
    result, calls = run_setup(tmp_path, failures=1)

    assert result.returncode == 0, result.stderr
    rebuild = next(call for call in calls if "--no-cache-dir" in call)
    assert "--force-reinstall" in rebuild
    assert re.search(r"--no-binary llama-cpp-python -r llama-cpp-python==\S+ --hash=sha256:[0-9a-f]{64} ?$", rebuild)
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
    assert refusal(ValueError, setup_check.prove_matrix_product) is None


def test_a_proof_that_fails_shows_what_it_wrote(capfd: pytest.CaptureFixture[str]) -> None:
    assert setup_check.prove_in_child("no-such-proof") == 1

    assert "KeyError" in capfd.readouterr().err
