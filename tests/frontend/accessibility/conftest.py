"""Debian's Chromium, a seeded site, and browsers that complain about nothing."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from inference.chromium import chromium, chromium_path
from tests.e2e.processes import ROOT
from tests.frontend.site import PASSWORD
from tests.requirements_check import need

START_SECONDS = 60.0
Visit = Callable[..., Page]


@pytest.fixture(scope="package")
def site(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running site, of a process of its own."""
    folder = tmp_path_factory.mktemp("site")
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "VAR_DIR": str(folder),
        "DATABASE_URL": f"sqlite:///{folder / 'site.sqlite3'}",
        "REDIS_URL": f"{redis_url}{'&' if '?' in redis_url else '?'}db=5",
        "DEMO_REQUESTS_PER_MINUTE": "1000",
        "DEMO_TOKENS_PER_HOUR": "1000000",
    }
    command = [sys.executable, "-m", "tests.frontend.site"]
    with (
        (folder / "site.log").open("w") as log,
        subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address.startswith("http"), (folder / "site.log").read_text()
        yield address
        process.terminate()
        process.wait(START_SECONDS)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    need("Chromium", chromium_path(), "apt-get install chromium")
    with chromium() as started:
        yield started


@pytest.fixture(scope="package")
def cookies(browser: Browser, site: str) -> dict[str, list[Any]]:
    """Sessions of the people of the site, by their names; "": nobody."""
    found: dict[str, list[Any]] = {"": []}
    for name in ("bob", "olga"):
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"{site}/me/sign-in")
        page.locator("#in-name").fill(name)
        page.locator("#in-password").fill(PASSWORD)
        page.locator("#in-password").press("Enter")
        page.wait_for_url("**/me/")
        found[name] = list(context.cookies())
        context.close()
    return found


@pytest.fixture
def visit(browser: Browser, site: str, cookies: dict[str, list[Any]]) -> Iterator[Visit]:
    """Opens an address in a browser of its own, as somebody; at the end no page may have complained about anything."""
    complaints: list[str] = []
    contexts: list[BrowserContext] = []

    def open_page(address: str, who: str = "", **options: Any) -> Page:
        context = browser.new_context(**options)
        context.add_cookies(cookies[who])
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(f"{address}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(f"{address}: {error}"))
        page.goto(site + address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    # Chromium notes every refusal of a request; a test that provokes one means it.
    assert [text for text in complaints if "status of 4" not in text] == []


def keep(page: Page, name: str) -> None:
    """A picture for a person to look at, where SCREENSHOTS names a folder."""
    folder = os.environ.get("SCREENSHOTS")
    if folder:
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)
