"""Fixtures of the market's tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.cache import cache
from django.test import Client
from pytest_django import DjangoDbBlocker, Settings

from tests.market.databases import PostgresDatabases, SqliteFiles, postgres_url


@pytest.fixture(autouse=True)
def _empty_cache() -> Iterator[None]:
    """Presence and rate limits live in the cache; no test sees another one's."""
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def client(settings: Settings, tmp_path: Path) -> Client:
    """Django's client; WhiteNoise warns when the folder of collected files does not exist."""
    settings.STATIC_ROOT = tmp_path
    return Client(raise_request_exception=False)


@pytest.fixture(scope="session")
def sqlite_files(tmp_path_factory: pytest.TempPathFactory, django_db_blocker: DjangoDbBlocker) -> SqliteFiles:
    with django_db_blocker.unblock():
        return SqliteFiles(tmp_path_factory.mktemp("sqlite"))


@pytest.fixture(scope="session")
def postgres_databases(django_db_blocker: DjangoDbBlocker) -> Iterator[PostgresDatabases]:
    url = postgres_url()
    with django_db_blocker.unblock():
        databases = PostgresDatabases(url)
        yield databases
        databases.close()


@pytest.fixture
def sqlite_database(sqlite_files: SqliteFiles, tmp_path: Path, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """A SQLite file of its own is the default database: transactions commit, threads race for real."""
    with django_db_blocker.unblock(), sqlite_files.fresh(tmp_path):
        yield


@pytest.fixture(params=["sqlite", "postgresql"])
def real_database(request: pytest.FixtureRequest, django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    """The same for each vendor; its name."""
    if request.param == "sqlite":
        request.getfixturevalue("sqlite_database")
        yield "sqlite"
        return
    databases: PostgresDatabases = request.getfixturevalue("postgres_databases")
    with django_db_blocker.unblock(), databases.fresh():
        yield "postgresql"
