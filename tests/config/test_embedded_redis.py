"""config/embedded_redis.py: the real server on a real socket."""

import stat
from pathlib import Path

import pytest
import redis

from config import embedded_redis


def test_it_answers_on_a_unix_socket_that_only_its_owner_can_use(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        client.set("alice", "asks")

        assert client.get("alice") == b"asks"

    mode = Path(redis_url.removeprefix("unix://")).stat().st_mode
    assert stat.S_IMODE(mode) == 0o700


def test_it_is_gone_after_the_block(tmp_path: Path) -> None:
    with embedded_redis.running(tmp_path) as url:
        path = Path(url.removeprefix("unix://"))
        assert embedded_redis.answers(path)

    assert not embedded_redis.answers(path)


def test_a_folder_with_a_long_name_still_gets_a_socket_that_can_be_bound(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 40)
    folder.mkdir()

    path = embedded_redis.socket_path(folder)

    assert len(str(path)) <= embedded_redis.SOCKET_PATH_LIMIT_BYTES
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.parent.rmdir()


def test_it_says_what_to_install_where_there_is_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")

    with pytest.raises(embedded_redis.NoRedisServer, match="apt-get install redis-server"):
        embedded_redis._find_on_path()


def test_it_says_what_the_server_wrote_when_it_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "redis.sock").mkdir()

    with pytest.raises(RuntimeError, match="did not start"), embedded_redis.running(tmp_path):
        pass
