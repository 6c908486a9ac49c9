"""`python -m frontend.screenshots [--folder docs/screenshots] [--only NAME]`: see `make screenshots`."""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frontend.screenshots import worker_page
from frontend.screenshots.pages import PAGES, SIZES, Shot
from frontend.screenshots.scene import BUILD, OPERATOR, OWNER, PASSWORD
from frontend.screenshots.site import ROOT, NotStarted, Site, demo_site
from inference.chromium import NoBrowser, chromium
from inference.demos.replayed import DemoFailed

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SETTLE_MILLISECONDS = 400


def log_in(page: "Page", url: str) -> None:
    """As the operator of the demo database."""
    page.goto(f"{url}/operator/login")
    page.fill("#id_username", OPERATOR)
    page.fill("#id_password", PASSWORD)
    page.click("main button[type=submit]")


def sign_in(page: "Page", url: str) -> None:
    """As the owner of three devices."""
    page.goto(f"{url}/me/sign-in")
    page.fill("#in-name", OWNER)
    page.fill("#in-password", PASSWORD)
    page.click("form:has(#in-name) button[type=submit]")


def take(browser: "Browser", site: Site, shots: Sequence[Shot], folder: Path) -> list[Path]:
    """One picture each; the files."""
    states: dict[str, Any] = {"": None}
    with browser.new_context() as context:
        page = context.new_page()
        log_in(page, site.url)
        states["operator"] = context.storage_state()
        node = "" if site.empty else _a_device(page, site.url)
    if any(shot.who == "owner" for shot in shots):
        with browser.new_context() as context:
            sign_in(context.new_page(), site.url)
            states["owner"] = context.storage_state()
    found = []
    for shot in shots:
        width, height = SIZES[shot.size]
        with browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=shot.scheme,
            reduced_motion="reduce",
            storage_state=states[shot.who],
        ) as context:
            page = context.new_page()
            model = next(path.relative_to(ROOT) for path in (ROOT / "models").glob("*.gguf"))
            page.goto(site.url + shot.address.format(build=BUILD.fingerprint, node=node, model=model))
            page.wait_for_selector(shot.wait_for)
            if shot.focus:
                page.focus(shot.focus)
            for key in shot.press:
                page.keyboard.press(key)
            page.wait_for_timeout(SETTLE_MILLISECONDS)
            found.append(folder / f"{shot.name}.png")
            page.screenshot(path=found[-1])
    return found


def _a_device(page: "Page", url: str) -> str:
    """The device that holds most."""
    page.goto(f"{url}/operator/nodes?sort=-experts")
    address = page.get_attribute("#nodes tbody a", "href") or ""
    return address.rpartition("/")[2]


def _pictures(browser: "Browser", shots: Sequence[Shot], folder: Path, *, empty: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="screenshots-") as var_dir, demo_site(Path(var_dir), empty=empty) as site:
        _tell(take(browser, site, shots, folder))


def _tell(found: Sequence[Path]) -> None:
    for path in found:
        sys.stdout.write(f"{path} {path.stat().st_size // 1000} kB\n")


def main() -> int:
    parser = argparse.ArgumentParser(description="Pictures of every page from a seeded demo database.")
    parser.add_argument("--folder", type=Path, default=ROOT / "docs" / "screenshots")
    parser.add_argument("--only", default="", help="pages whose name holds this text")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    wanted = [shot for shot in PAGES if arguments.only in shot.name]
    try:
        with chromium() as browser:
            for empty in (False, True):
                shots = [shot for shot in wanted if shot.empty == empty]
                if shots:
                    _pictures(browser, shots, arguments.folder, empty=empty)
        if any(arguments.only in f"worker-{state}" for state in worker_page.STATES):
            _tell(worker_page.pictures(arguments.folder))
    except (NoBrowser, NotStarted, DemoFailed) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
