"""Fixtures and rules of the whole test run: a private Redis, a private VAR_DIR, and no silent skip under REQUIRE_ALL.

`tests/requirements_check.py` (`need`) skips where a program of the system is absent and says what to install. On the
machine that must run everything, REQUIRE_ALL=1 turns every skip into a failure.
"""

import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pytest_django import Settings

from config import embedded_redis
from inference.chromium import chromium, chromium_path
from tests.requirements_check import need

if TYPE_CHECKING:
    from playwright.sync_api import Browser

REQUIRE_ALL = os.environ.get("REQUIRE_ALL") == "1"


def _forbid_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Makes a skipped report a failure that keeps the reason; an expected failure (xfail) is no skip."""
    if not REQUIRE_ALL or report.outcome != "skipped" or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    report.outcome = "failed"
    report.longrepr = f"skipped although REQUIRE_ALL=1: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _forbid_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _forbid_skip(report)
    return report


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A private Redis server for the whole run, on a Unix socket; use `redis_database` to start from an empty one."""
    with embedded_redis.running(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """Headless Chromium. Of a module only: while Playwright runs, no other event loop can in this thread."""
    need("Chromium", chromium_path(), "apt-get install -y chromium")
    with chromium() as started:
        yield started


@pytest.fixture
def redis_database(redis_url: str) -> str:
    """The private server's URL, emptied."""
    import redis

    with redis.Redis.from_url(redis_url) as client:
        client.flushall()
    return redis_url


@pytest.fixture
def var_dir(tmp_path: Path, settings: Settings) -> Path:
    """A private VAR_DIR that `settings.VAR_DIR` names during the test."""
    folder = tmp_path / "var"
    folder.mkdir(mode=0o700)
    settings.VAR_DIR = folder
    return folder


@pytest.fixture(autouse=True, scope="session")
def _keep_the_developers_var_dir_clean(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever a test writes below VAR_DIR lands in a folder of this run, never in the tree."""
    from django.conf import settings

    settings.VAR_DIR = tmp_path_factory.mktemp("var")
