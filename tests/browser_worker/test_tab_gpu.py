"""A tab whose experts a graphics card computes says so to the relay, and earns the trust of that kernel."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest
from playwright.sync_api import Browser, Route, sync_playwright

from frontend.browser_worker.build import FOLDER
from inference.benchmarks.wasm_page import SOFTWARE_GPU
from tests.browser_worker import tab
from tests.browser_worker.tab import Phone, choose, generate, lend, rows, token_of
from tests.e2e.live_server import LiveServer

pytestmark = [pytest.mark.e2e, pytest.mark.browser, pytest.mark.slow]

AUDIT_SECONDS = 90.0
AUTOMATIC = 'gpu: wish = "auto"'


@pytest.fixture(scope="module")
def server(small_server: LiveServer) -> LiveServer:
    """A card that the processor plays is slow."""
    return small_server


@pytest.fixture(scope="module")
def browser(chromium: str, server: LiveServer) -> Iterator[Browser]:
    with sync_playwright() as playwright, closing(tab.launch(playwright, chromium, server, *SOFTWARE_GPU)) as browser:
        yield browser


def any_adapter(route: Route) -> None:
    """The only adapter here is one that the processor plays, which pages leave alone."""
    text = (FOLDER / "kernels.js").read_text()
    assert AUTOMATIC in text
    body = text.replace(AUTOMATIC, 'gpu: wish = "any"')
    route.fulfill(body=body, content_type="text/javascript", headers={"Cross-Origin-Embedder-Policy": "require-corp"})


def trusted(server: LiveServer) -> tuple[str, int]:
    """The kernel class that the newest device earned trust in, and how much."""
    with closing(sqlite3.connect(server.var_dir / "expertswarm.sqlite3")) as database:
        newest = "select trusted_class, trust from market_node order by registered_at desc limit 1"
        found: tuple[str, int] = database.execute(newest).fetchone()
        return found


def test_trust_is_earned_by_the_kernel_that_computes(phone: Phone, server: LiveServer, invite: str) -> None:
    page = phone.open(phone.https, f"#invite={invite}", routes={"**/worker/kernels.js": any_adapter})
    choose(page, tab.ONE_EXPERT)

    lend(page, 120)
    assert token_of(page)
    server.wait_for(lambda: bool(generate(server)) and trusted(server)[1] > 0, AUDIT_SECONDS, "answers were audited")

    assert rows(page) > 0
    assert trusted(server)[0].startswith("webgpu-")
