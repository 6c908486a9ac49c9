"""config/supervisor/private_file.py: secrets that only their owner reads."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from config.supervisor.private_file import secret, write_private


def test_a_secret_is_made_once_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "token"

    first = secret(path, prefix="es-")

    assert first.startswith("es-")
    assert len(first) > 50
    assert secret(path) == first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_threads_that_make_the_same_secret_agree(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(lambda _: secret(tmp_path / "token"), range(32)))

    assert len(made) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["token"]


def test_it_replaces_a_file_in_one_step_and_leaves_no_other(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text("old")
    path.chmod(0o644)

    write_private(path, "new")

    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]
