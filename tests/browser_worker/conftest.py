"""Chromium, for the tests that need a browser; a server for the tests of the tab."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from inference.benchmarks.wasm_page import WasmPage
from inference.chromium import chromium_path
from tests.browser_worker import tab
from tests.browser_worker.tab import Phone
from tests.e2e.live_server import LiveServer, live_server
from tests.requirements_check import need

# What Chromium notes by itself: an opener policy means nothing without encryption; there is no graphics card.
NOTES = ("Cross-Origin-Opener-Policy", "No available adapters")


@pytest.fixture(scope="session")
def chromium() -> str:
    path = chromium_path()
    need("Chromium", path, "apt-get install chromium")
    assert path is not None
    return path


@pytest.fixture(scope="module")
def page(chromium: str) -> Iterator[WasmPage]:
    with WasmPage() as page:
        yield page


@pytest.fixture(scope="package")
def small_server(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """Small experts, and time for them; whoever registers needs an invite."""
    arguments = ("--workers", "1", "--budget", "8MB", "--lan", "--lan-name", tab.HOST, "--tls", "--tls-port", "0")
    wishes = {**tab.quick_clocks(), "DISPATCH_DEADLINE_SECONDS": "5", "REGISTRATION": "invite"}
    with live_server(tmp_path_factory.mktemp("small"), *arguments, **wishes) as started:
        yield started


@pytest.fixture(scope="package")
def invite(small_server: LiveServer) -> str:
    """A code for as many devices as the tests of `small_server` have."""
    code, problem = small_server.manage("invite", "--uses", "9").communicate(timeout=60)
    assert code.strip(), problem
    return code.strip()


@pytest.fixture(scope="package")
def server(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A Python worker holds 18 of the 64 experts, the rest is for tabs; open to the local network, with HTTPS too."""
    folder = tmp_path_factory.mktemp("tab")
    lan = ("--lan", "--lan-name", tab.HOST, "--tls", "--tls-port", "0")
    arguments = ("--model", str(tab.model(folder)), "--workers", "1", "--budget", "100MB", *lan)
    with live_server(folder, *arguments, **tab.quick_clocks()) as started:
        yield started


@pytest.fixture(scope="module")
def browser(chromium: str, server: LiveServer) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = tab.launch(playwright, chromium, server)
        yield browser
        browser.close()


@pytest.fixture
def phone(browser: Browser, server: LiveServer) -> Iterator[Phone]:
    """At the end no page may have complained, and nothing is lent any more."""
    phone = Phone(browser, server)
    yield phone
    phone.close()
    assert [text for text in phone.complaints if not any(note in text for note in NOTES)] == []
