"""What a whole tab takes beside 340 MB of experts, while it downloads, serves, and begins anew after a reload.

Counted is the memory of Chromium's page processes that is their own (no file's pages), beyond what the same page takes
before anything is lent: that is the browser's own cost, tens of megabytes, and not ours to spend.
"""

import time
from pathlib import Path

import pytest

from tests.browser_worker import tab
from tests.browser_worker.plain_chromium import PlainChromium
from tests.e2e.live_server import LiveServer

pytestmark = [pytest.mark.e2e, pytest.mark.browser, pytest.mark.slow]

SLICES = 64 * tab.EXPERT_BYTES
MOST_BESIDE = 64 << 20
# Chromium starts a process for the next tab beforehand; it is no part of this one.
ONE_TAB = ["--disable-features=SpareRendererForSitePerProcess"]
LEND_SECONDS = 120.0
CHOOSE = f"""(() => {{
  const slider = document.getElementById("budget");
  slider.value = {tab.MEGABYTES_340};
  for (const kind of ["input", "change"]) slider.dispatchEvent(new Event(kind));
  return document.getElementById("budget-text").textContent;
}})()"""
# The script of the page has begun; and not that of the page before a reload.
LOADED = "Boolean(document.body?.dataset.phase) && !window.old"
INSTALLED = "navigator.serviceWorker.ready.then(() => true)"
HELD = """document.getElementById("state").textContent.startsWith("serving ")
  && ![...document.querySelectorAll("#slices progress")].some((bar) => !bar.hidden)"""
RECEIVED = "parseFloat(document.getElementById('received').textContent)"
COMPUTED = "document.getElementById('rows').textContent !== '0'"


def settled_bytes(browser: PlainChromium) -> int:
    """What the tab takes when it takes no more: a page that has just loaded still unfolds."""
    before, now = 0, browser.tab_bytes()
    while now > before + (1 << 20):
        time.sleep(1)
        before, now = now, browser.tab_bytes()
    return now


def test_340_megabytes_fit_into_one_tab_with_little_beside_them(
    server: LiveServer, chromium: str, tmp_path: Path
) -> None:
    with PlainChromium(chromium, tmp_path / "profile", f"{server.run.url}/worker", ONE_TAB) as browser:
        browser.wait_for(f"({LOADED}) && {INSTALLED}", 30)
        idle = settled_bytes(browser)
        assert browser.run(CHOOSE) == "340.0 MB: 64 experts"

        browser.run("document.getElementById('lend').click()")
        downloading = browser.wait_for(HELD, LEND_SECONDS) - idle
        received = browser.run(RECEIVED)
        assert tab.generate(server)
        serving = browser.wait_for(COMPUTED, 30) - idle
        browser.run("window.old = true; location.reload()")
        reloading = browser.wait_for(f"({LOADED}) && {HELD}", LEND_SECONDS) - idle
        again = browser.run(RECEIVED)
        browser.run("document.getElementById('stop').click()")
        browser.wait_for("document.body.dataset.phase === 'stopped'", 30)

    beside = {
        name: most - SLICES
        for name, most in {"downloading": downloading, "serving": serving, "reloading": reloading}.items()
    }
    assert received == pytest.approx(SLICES / 1e6, abs=0.2)
    assert again == 0
    assert all(0 < most < MOST_BESIDE for most in beside.values()), beside
