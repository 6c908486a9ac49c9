"""market/backup.py and its commands: a drill on each database, from a day's history into an empty one and back."""

import gzip
import json
from io import StringIO
from pathlib import Path

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.core.management import CommandError, call_command
from pytest_django import DjangoDbBlocker

from inference.models import ApiKey
from market import backup, replay, store
from market.models import Balance, NodeProfile, Posting
from market.models import Event as EventRow
from tests.market.databases import PostgresDatabases, SqliteFiles
from tests.market.test_replay import a_market_day

POSTING = ("event_position", "account", "amount_microcredits")
Rows = list[tuple[object, ...]]


def everything() -> dict[str, Rows]:
    """What must survive."""
    return {
        "events": list(EventRow.objects.order_by("position").values_list()),
        "postings": list(Posting.objects.order_by("event_position", "account").values_list(*POSTING)),
        "balances": list(Balance.objects.order_by("account").values_list("account", "balance_microcredits")),
        "profiles": list(NodeProfile.objects.order_by("node_id").values_list()),
        "users": list(User.objects.order_by("pk").values_list("username", "password", "groups__name")),
        "keys": list(ApiKey.objects.order_by("pk").values_list("name", "key_sha256", "revoked_at")),
    }  # fmt: skip


def a_server_with_people() -> None:
    a_market_day()
    group = Group.objects.create(name="payers")
    group.permissions.add(Permission.objects.get(codename="approve_payouts"))
    User.objects.create_user("carol", password="not in the clear").groups.add(group)
    ApiKey.objects.create(name="alice", key_sha256="ab" * 32, hint="ab")


@pytest.mark.parametrize("target", ["sqlite", "postgresql"])
@pytest.mark.parametrize("source", ["sqlite", "postgresql"])
def test_a_backup_of_either_database_restores_into_an_empty_one_of_either_with_equal_books(
    source: str,
    target: str,
    tmp_path: Path,
    sqlite_files: SqliteFiles,
    postgres_databases: PostgresDatabases,
    django_db_blocker: DjangoDbBlocker,
) -> None:
    file, output = tmp_path / "backup.jsonl.gz", StringIO()
    folder = tmp_path / "target"
    folder.mkdir()

    with django_db_blocker.unblock():
        with sqlite_files.fresh(tmp_path) if source == "sqlite" else postgres_databases.fresh():
            a_server_with_people()
            call_command("backup", str(file), stdout=StringIO())
            before = everything()
        with sqlite_files.fresh(folder) if target == "sqlite" else postgres_databases.fresh():
            call_command("restore", str(file), stdout=output)
            after = everything()
            report = replay.check()
            permissions = list(Group.objects.values_list("permissions__codename", flat=True))

    assert after == before
    assert len(after["events"]) > 20
    assert report.ok
    assert permissions == ["approve_payouts"]
    assert "the books are equal" in output.getvalue()
    assert f"{len(after['events'])} events" in output.getvalue()


def test_the_file_is_private_and_holds_no_token(real_database: str, tmp_path: Path) -> None:
    a_server_with_people()
    path = tmp_path / "backup.gz"

    summary = backup.write(path)

    assert path.stat().st_mode & 0o777 == 0o600
    text = gzip.decompress(path.read_bytes()).decode()
    assert "not in the clear" not in text
    assert summary.position == store.last_position()


def test_history_is_never_merged_into_another_one(sqlite_database: None, tmp_path: Path) -> None:
    a_market_day()
    path = tmp_path / "backup.gz"
    backup.write(path)
    before = everything()

    with pytest.raises(CommandError, match="database_not_empty"):
        call_command("restore", str(path))

    assert everything() == before


def test_an_older_backup_is_not_overwritten(sqlite_database: None, tmp_path: Path) -> None:
    path = tmp_path / "backup.gz"
    path.write_bytes(b"yesterday's")

    with pytest.raises(CommandError, match="exists already"):
        call_command("backup", str(path))

    assert path.read_bytes() == b"yesterday's"


@pytest.mark.parametrize("damage", ["empty", "cut", "torn", "changed", "missing event", "other format", "no gzip"])
def test_a_damaged_backup_is_refused_and_leaves_the_database_empty(
    damage: str, sqlite_files: SqliteFiles, tmp_path: Path, django_db_blocker: DjangoDbBlocker
) -> None:
    path, folder = tmp_path / "backup.gz", tmp_path / "target"
    folder.mkdir()
    with django_db_blocker.unblock():
        with sqlite_files.fresh(tmp_path):
            a_market_day()
            backup.write(path)
        path.write_bytes(damaged(path.read_bytes(), damage))

        with sqlite_files.fresh(folder):
            with pytest.raises(backup.BadBackup):
                backup.restore(path)

            assert store.last_position() == 0
            backup.refuse_unless_empty()


def damaged(data: bytes, how: str) -> bytes:
    lines = gzip.decompress(data).splitlines(keepends=True)
    match how:
        case "empty":
            return b""
        case "torn":
            middle = len(data) // 2
            return data[:middle] + bytes(byte ^ 0xFF for byte in data[middle : middle + 64]) + data[middle + 64 :]
        case "cut":
            return data[: len(data) // 2]
        case "changed":
            lines[5] = lines[5].replace(b'"recorded_at":"2', b'"recorded_at":"1', 1)
        case "missing event":
            del lines[7]
        case "other format":
            lines[0] = json.dumps({**json.loads(lines[0]), "format": 99}).encode() + b"\n"
        case _:
            return b"hello"
    return gzip.compress(b"".join(lines))
