"""Debian's Chromium without a window, for programs that measure or picture pages.

Playwright, which drives it, is a package of requirements-dev.txt: it is imported when a browser is wanted, not before.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser


class NoBrowser(RuntimeError):
    """Chromium or Playwright is missing; the text says how to get it."""


def chromium_path() -> str | None:
    """Debian's Chromium, where it is installed."""
    return shutil.which("chromium")


@contextmanager
def chromium(*arguments: str) -> Iterator["Browser"]:
    """A browser that is closed at the end; arguments: for Chromium. Raises NoBrowser."""
    path = chromium_path()
    if path is None:
        raise NoBrowser("Chromium is missing: apt-get install chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise NoBrowser("Playwright is missing: `make setup` installs requirements-dev.txt") from error
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", *arguments])
        try:
            yield browser
        finally:
            browser.close()
