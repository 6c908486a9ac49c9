"""config/supervisor/run_file.py: who owns VAR_DIR, and what the other commands read."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from config.supervisor import run_file
from config.supervisor.run_file import AlreadyRunning, RunFile, ServerNotRunning

RUN = RunFile(
    pid=4242,
    url="http://127.0.0.1:8000",
    port=8000,
    redis_url="unix:///var/redis.sock",
    database_url="sqlite:///var/db.sqlite3",
    api_key="es-dev-key",
    model="/models/demo.gguf",
    started="2026-01-02T03:04:05+00:00",
    pids={"web": 4243},
)


def test_what_the_owner_writes_is_what_a_reader_reads(tmp_path: Path) -> None:
    with run_file.owned(tmp_path):
        run_file.write(tmp_path, RUN)

        assert run_file.read(tmp_path) == RUN
        assert stat.S_IMODE((tmp_path / "run.json").stat().st_mode) == 0o600


def test_it_says_how_to_start_a_server_where_none_ever_ran(tmp_path: Path) -> None:
    with pytest.raises(ServerNotRunning, match="make run"):
        run_file.read(tmp_path)


def test_it_says_that_a_server_is_still_starting(tmp_path: Path) -> None:
    with run_file.owned(tmp_path), pytest.raises(ServerNotRunning, match="still starting"):
        run_file.read(tmp_path)


def test_the_note_is_removed_with_its_owner(tmp_path: Path) -> None:
    with run_file.owned(tmp_path):
        run_file.write(tmp_path, RUN)

    assert not (tmp_path / "run.json").exists()
    with pytest.raises(ServerNotRunning, match="make run"):
        run_file.read(tmp_path)


def test_a_second_owner_is_refused_and_told_the_pid_of_the_first(tmp_path: Path) -> None:
    with (
        run_file.owned(tmp_path),
        pytest.raises(AlreadyRunning, match=f"pid {os.getpid()}"),
        run_file.owned(tmp_path),
    ):
        pass


def test_a_note_that_outlived_its_killed_owner_is_stale(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from config.supervisor import run_file\n"
        "with run_file.owned(Path(sys.argv[1])): print('owned', flush=True); time.sleep(60)"
    )
    owner = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE)
    assert owner.stdout is not None
    assert owner.stdout.readline() == b"owned\n"
    run_file.write(tmp_path, RUN)
    assert run_file.read(tmp_path) == RUN

    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()

    assert (tmp_path / "run.json").exists()
    with pytest.raises(ServerNotRunning, match="make run"):
        run_file.read(tmp_path)
    with run_file.owned(tmp_path):
        run_file.write(tmp_path, RUN)
        assert run_file.read(tmp_path) == RUN


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"pid": 1}'])
def test_a_damaged_note_is_an_error_with_a_way_out(tmp_path: Path, text: str) -> None:
    with run_file.owned(tmp_path):
        (tmp_path / "run.json").write_text(text)

        with pytest.raises(ServerNotRunning, match="restart the server"):
            run_file.read(tmp_path)


def test_it_needs_no_django() -> None:
    program = "import sys, config.supervisor.run_file; sys.exit('django' in sys.modules or 'celery' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
