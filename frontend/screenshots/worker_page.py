"""Pictures of `/worker` on a phone in each of its states: `python -m frontend.screenshots.worker_page [--folder F]`.

A server of its own with the demo model, a real tab, real dispatches; only the network is slowed down for one picture.
"""

import argparse
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from inference.chromium import NoBrowser, chromium
from inference.demos.replayed import DemoFailed
from inference.demos.served import complete, running_server
from inference.synthetic import DEMO_MODEL

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Request, Route

    from config.supervisor.run_file import RunFile

ROOT = Path(__file__).resolve().parents[2]
HOST = "phone.test"
STATES = ("idle", "downloading", "serving", "paused", "refused", "insecure")
WIDTH, HEIGHT = 360, 740
# A place of the slider that takes several slices of the demo model, and how many pieces arrive before the picture.
PLACE, PIECES = 4, 2
STATE_SECONDS = 60
OFF_THE_CHARGER = """navigator.getBattery = async () =>
  Object.assign(new EventTarget(), { charging: false, level: 0.64 });"""


class WorkerPage:
    """The page of one server, opened anew for each picture."""

    def __init__(self, browser: "Browser", server: "RunFile", folder: Path) -> None:
        self._browser, self._server, self._folder = browser, server, folder
        self.found: list[Path] = []

    def open(self, fragment: str = "", host: str = "127.0.0.1", dark: bool = False, before: str = "") -> "Page":
        context = self._browser.new_context(
            viewport={"width": WIDTH, "height": HEIGHT},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
        )
        page = context.new_page()
        if before:
            page.add_init_script(before)
        page.goto(f"http://{host}:{self._server.port}/worker{fragment}")
        page.locator("#budget").evaluate(
            f"(slider) => {{ slider.value = {PLACE}; slider.dispatchEvent(new Event('input')); }}"
        )
        return page

    def take(self, page: "Page", name: str, *, at: str = "h1") -> None:
        """at: what stands at the top of the picture."""
        page.locator(at).first.evaluate("element => element.scrollIntoView()")
        path = self._folder / f"worker-{name}.png"
        page.screenshot(path=path)
        self.found.append(path)

    def lend(self, page: "Page", until: str) -> None:
        page.get_by_role("button", name="Lend").click()
        page.wait_for_function(
            "text => document.getElementById('state').textContent.includes(text)",
            arg=until,
            timeout=1000 * STATE_SECONDS,
        )

    def stop(self, page: "Page") -> None:
        page.get_by_role("button", name="Stop").click()
        page.wait_for_function("() => document.body.dataset.phase === 'stopped'")
        page.context.close()


def take_all(browser: "Browser", server: "RunFile", folder: Path) -> list[Path]:
    """Every state: idle, downloading, serving, paused, refused, insecure; the files."""
    pages = WorkerPage(browser, server, folder)
    idle = pages.open()
    pages.take(idle, "idle")
    idle.context.close()
    _downloading_and_serving(pages, server)
    paused = pages.open(before=OFF_THE_CHARGER)
    pages.lend(paused, "not charging")
    pages.take(paused, "paused")
    pages.stop(paused)
    refused = pages.open("#token=nobody")
    pages.lend(refused, "does not know")
    pages.take(refused, "refused")
    refused.context.close()
    insecure = pages.open(host=HOST, dark=True)
    pages.lend(insecure, "serving")
    pages.take(insecure, "insecure")
    pages.stop(insecure)
    return pages.found


def _downloading_and_serving(pages: WorkerPage, server: "RunFile") -> None:
    """The pieces after the first few wait until the picture is taken."""
    page = pages.open()
    arrived: list[Request] = []
    held: list[Route] = []
    taken = threading.Event()

    def hold(route: "Route", request: "Request") -> None:
        if taken.is_set() or "range" not in request.headers or len(arrived) < PIECES:
            arrived.extend([request] if "range" in request.headers else [])
            route.continue_()
        else:
            held.append(route)

    page.context.route("**/*", hold)
    pages.lend(page, "downloading")
    while not held:
        page.wait_for_timeout(100)
    page.wait_for_timeout(300)
    pages.take(page, "downloading", at="#state-title")
    taken.set()
    for route in held:
        route.continue_()
    page.wait_for_function("() => document.body.dataset.phase === 'serving'", timeout=1000 * STATE_SECONDS)
    for seed in range(3):
        complete(server, "In the beginning", 24, seed)
    page.wait_for_function("() => document.getElementById('pending').textContent !== '0'", timeout=1000 * STATE_SECONDS)
    pages.take(page, "serving", at="#state-title")
    pages.stop(page)


def pictures(folder: Path) -> list[Path]:
    """All of them, with a server and a browser of their own. Raises NoBrowser, DemoFailed."""
    options = ("--workers", "1", "--budget", "8MB", "--lan", "--lan-name", HOST)
    quick = {"CREDIT_WINDOW_SECONDS": "2"}
    with (
        chromium(f"--host-resolver-rules=MAP {HOST} 127.0.0.1") as browser,
        tempfile.TemporaryDirectory(prefix="screenshots-") as var_dir,
        running_server(DEMO_MODEL, Path(var_dir), options, environment=quick) as server,
    ):
        return take_all(browser, server, folder)


def main() -> int:
    parser = argparse.ArgumentParser(description="Pictures of the page that lends, in each of its states.")
    parser.add_argument("--folder", type=Path, default=ROOT / "docs" / "screenshots")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    try:
        for path in pictures(folder):
            sys.stdout.write(f"{path} {path.stat().st_size // 1000} kB\n")
    except (NoBrowser, DemoFailed) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
