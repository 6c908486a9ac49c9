"""config/supervisor/launch.py: the parts that need no server. (The whole: tests/e2e/test_up.py.)"""

import socket
import stat
from pathlib import Path

import pytest

from config.supervisor.launch import check_store, free_port, prepare
from config.supervisor.supervise import StartFailed
from tests.refusal import refusal


def test_it_makes_a_private_folder_with_secrets_and_keeps_them(tmp_path: Path) -> None:
    var_dir = tmp_path / "deep" / "var"

    first = prepare(var_dir)
    second = prepare(var_dir)

    assert first == second
    assert len(first) >= 50
    assert stat.S_IMODE(var_dir.stat().st_mode) == 0o700
    for name in ("backbone.token", "secret.key"):
        assert stat.S_IMODE((var_dir / name).stat().st_mode) == 0o600


def test_a_busy_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]

        with pytest.raises(StartFailed, match=rf"127.0.0.1 port {port}: Address already in use; choose .*--port"):
            free_port("127.0.0.1", port)


def test_port_zero_finds_a_free_one() -> None:
    port = free_port("127.0.0.1", 0)

    assert port > 0
    assert free_port("127.0.0.1", port) == port


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(StartFailed, match="check --host"):
        free_port("192.0.2.1", 0)


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_cannot_exist_is_named(port: int) -> None:
    with pytest.raises(StartFailed, match=f"no port {port}: choose one .*--port"):
        free_port("127.0.0.1", port)


def test_a_redis_that_does_not_answer_is_said_at_once_without_its_password() -> None:
    port = free_port("127.0.0.1", 0)

    with pytest.raises(StartFailed, match=r"REDIS_URL does not answer: .*refused\. Start it") as refusal:
        check_store(f"redis://:secret@127.0.0.1:{port}/0")

    assert "secret" not in str(refusal.value)


def test_a_redis_that_answers_is_accepted(redis_database: str) -> None:
    assert refusal(StartFailed, check_store, redis_database) is None
