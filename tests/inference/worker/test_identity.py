"""One node per server and state folder; its token is nobody else's business."""

import stat
from pathlib import Path

import pytest

from inference.worker.errors import StateUnusable
from inference.worker.identity import (
    Identity,
    forget_identity,
    load_identity,
    locked_folder,
    save_identity,
    server_folder,
)

ALICE = Identity("node-1", "secret-token")


def test_a_saved_identity_is_read_back(tmp_path: Path) -> None:
    save_identity(tmp_path, ALICE)

    assert load_identity(tmp_path) == ALICE


def test_the_token_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    save_identity(tmp_path, ALICE)

    assert stat.S_IMODE((tmp_path / "node.json").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["node.json"]


def test_the_token_does_not_show_in_logs() -> None:
    assert "secret-token" not in f"{ALICE} {ALICE!r}"


def test_a_new_machine_has_no_identity(tmp_path: Path) -> None:
    assert load_identity(tmp_path) is None


def test_a_forgotten_identity_is_gone(tmp_path: Path) -> None:
    save_identity(tmp_path, ALICE)

    forget_identity(tmp_path)
    forget_identity(tmp_path)

    assert load_identity(tmp_path) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"node_id": "x"}'])
def test_a_damaged_file_is_told_with_what_to_do(tmp_path: Path, text: str) -> None:
    (tmp_path / "node.json").write_text(text)

    with pytest.raises(StateUnusable, match="delete it to register as a new node"):
        load_identity(tmp_path)


def test_every_server_has_a_folder_of_its_own(tmp_path: Path) -> None:
    servers = [
        "http://127.0.0.1:8000",
        "http://127.0.0.1:8001",
        "https://127.0.0.1:8000",
        "https://swarm.example",
        "https://swarm.example/a",
        "https://swarm.example/../../etc",
    ]

    folders = [server_folder(tmp_path, server) for server in servers]

    assert len(set(folders)) == len(servers)
    assert all(folder.parent == tmp_path for folder in folders)
    assert folders[0].name.startswith("127.0.0.1-8000-")


def test_a_second_worker_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "state"

    with (
        locked_folder(folder),
        pytest.raises(StateUnusable, match="another worker already uses"),
        locked_folder(folder),
    ):
        pass


def test_the_lock_is_free_again_after_use(tmp_path: Path) -> None:
    with locked_folder(tmp_path):
        pass

    with locked_folder(tmp_path) as folder:
        assert folder == tmp_path


def test_a_folder_that_cannot_be_made_is_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(StateUnusable, match="cannot use the state folder"), locked_folder(tmp_path / "file" / "state"):
        pass


def test_an_identity_that_cannot_be_saved_is_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(StateUnusable, match="cannot write"):
        save_identity(tmp_path / "absent", ALICE)
