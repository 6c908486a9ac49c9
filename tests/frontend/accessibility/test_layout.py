"""Every page fits its screen: phone, tablet, desktop, light and dark; first loads are small; fingers find buttons."""

import pytest
from playwright.sync_api import Browser, Page

from tests.frontend.accessibility.addresses import EVERY, READING, Shown
from tests.frontend.accessibility.conftest import Visit, keep

pytestmark = pytest.mark.browser

WIDTHS = (360, 768, 1440)
FIRST_LOAD_BYTES = 200_000


def too_wide(page: Page) -> list[str]:
    """Elements that reach beyond the screen although the page itself must not scroll sideways."""
    found: list[str] = page.evaluate(
        """() => document.documentElement.scrollWidth <= innerWidth ? [] : [...document.querySelectorAll("main *")]
            .filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".scroll"))
            .map((e) => e.outerHTML.slice(0, 120))"""
    )
    return found


@pytest.mark.parametrize("shown", EVERY, ids=lambda shown: shown.name)
def test_a_page_fits_every_screen(visit: Visit, shown: Shown) -> None:
    page = visit(shown.address, shown.who, viewport={"width": WIDTHS[0], "height": 740})
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")

            assert too_wide(page) == [], width
            background = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
            assert (background == "rgb(255, 255, 255)") == (scheme == "light")
            if (width, scheme) in ((360, "light"), (1440, "light")):
                keep(page, f"{shown.name}-{width}-{scheme}")


@pytest.mark.parametrize("shown", READING, ids=lambda shown: shown.name)
def test_controls_are_big_enough_for_a_finger(visit: Visit, shown: Shown) -> None:
    page = visit(shown.address, shown.who, viewport={"width": 360, "height": 740})

    small = page.evaluate(
        """() => [...document.querySelectorAll("button, input:not([type=hidden]), select, textarea, header a, summary")]
            .filter((e) => e.checkVisibility() && !e.closest("label.check"))
            .filter((e) => e.getBoundingClientRect().height < 40).map((e) => e.outerHTML.slice(0, 120))"""
    )

    assert small == []


@pytest.mark.parametrize("shown", [one for one in READING if one.name in ("playground", "status", "join", "sign-in")])
def test_the_first_load_is_small_and_asks_nobody_else(browser: Browser, site: str, shown: Shown) -> None:
    context = browser.new_context()
    page = context.new_page()
    sizes: dict[str, int] = {}
    page.on("response", lambda response: sizes.update({response.url: len(response.body())}))

    page.goto(site + shown.address, wait_until="networkidle")
    context.close()

    assert sum(sizes.values()) < FIRST_LOAD_BYTES, sizes
    assert all(url.startswith(site) for url in sizes)
