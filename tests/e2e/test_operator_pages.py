"""The operator's pages in a real browser against a real server with a large market: sizes, colours, keys, no script."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from frontend.screenshots.__main__ import log_in
from frontend.screenshots.pages import SIZES
from frontend.screenshots.scene import BUILD
from frontend.screenshots.site import Site, demo_site
from inference.chromium import NoBrowser, chromium
from tests.e2e.test_pages import contrasts, width_of

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

PAGES = ("", "series", "nodes", "builds", "requests", "alerts", "policy", f"layer/{BUILD.fingerprint}/3")
Open = Callable[..., Page]


@pytest.fixture(scope="module")
def site(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with demo_site(tmp_path_factory.mktemp("site")) as running:
        yield running


@pytest.fixture(scope="module")
def session(browser: Browser, site: Site) -> Any:
    """Cookies of the operator."""
    with browser.new_context() as context:
        log_in(context.new_page(), site.url)
        return context.storage_state()


@pytest.fixture
def visit(browser: Browser, site: Site, session: Any) -> Iterator[Open]:
    """Opens a page as the operator; at the end no page may have complained about anything."""
    complaints: list[str] = []
    contexts = []

    def open_page(address: str, **options: Any) -> Page:
        context = browser.new_context(storage_state=session, **{"viewport": size("desk"), **options})
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"{site.url}/operator/{address}")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def size(name: str) -> dict[str, int]:
    width, height = SIZES[name]
    return {"width": width, "height": height}


def drawn(page: Page) -> Page:
    """The same page once its map has its colours."""
    page.wait_for_selector("#legend li")
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", SIZES)
def test_every_page_fits_its_screen_and_can_be_read(visit: Open, name: str, scheme: str) -> None:
    page = visit("", viewport=size(name), color_scheme=scheme)
    for address in PAGES:
        page.goto(f"{page.url.partition('/operator/')[0]}/operator/{address}")

        assert width_of(page) == size(name)["width"], address
        assert min(contrasts(page)) >= 4.5, address


def test_the_map_is_walked_zoomed_and_opened_by_keys_alone(visit: Open) -> None:
    page = drawn(visit(""))
    page.focus("#map")

    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    expect(page.locator("#cursor-text")).to_contain_text("layer 1, expert 3:")
    page.keyboard.press("End")
    expect(page.locator("#cursor-text")).to_contain_text("layer 1, expert 255:")
    page.keyboard.press("+")
    expect(page.locator("#map")).to_have_class("zoomed")
    page.keyboard.press("Enter")

    expect(page.locator("#cell h2")).to_have_text("Layer 1, expert 255")
    page.keyboard.press("Escape")
    expect(page.locator("#map")).not_to_have_class("zoomed")


def test_a_click_opens_the_cell_under_the_pointer_and_hovering_names_it(visit: Open) -> None:
    page = drawn(visit(""))
    box = page.locator("#map").bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] * 100.5 / 256, box["y"] + box["height"] * 20.5 / 49

    page.mouse.move(x, y)
    expect(page.locator("#cursor-text")).to_contain_text("layer 20, expert 100:")
    page.mouse.click(x, y)

    expect(page.locator("#cell h2")).to_have_text("Layer 20, expert 100")


def test_another_measure_changes_colours_legend_and_table_and_nothing_moves(visit: Open) -> None:
    page = drawn(visit(""))
    before, place = page.locator("#legend").inner_text(), page.locator("#map").bounding_box()

    page.click("#measures a[data-measure=demand]")
    expect(page.locator("#legend")).to_contain_text("rows/hour")
    expect(page.locator("#layers caption")).to_contain_text("Demand")

    assert page.locator("#legend").inner_text() != before
    assert page.locator("#map").bounding_box() == place
    assert page.url.endswith("measure=demand")


def test_new_cells_keep_zoom_and_cursor(visit: Open) -> None:
    page = drawn(visit(""))
    page.focus("#map")
    for key in ("ArrowDown", "ArrowRight", "+", "+"):
        page.keyboard.press(key)
    words = page.locator("#cursor-text").inner_text()

    with page.expect_response(lambda response: "/operator/cells" in response.url, timeout=10_000):
        pass

    assert page.locator("#cursor-text").inner_text() == words
    expect(page.locator("#map")).to_have_class("zoomed")


def test_charts_are_drawn_for_every_figure(visit: Open) -> None:
    page = visit("series")

    expect(page.locator(".plot .u-over")).to_have_count(8)
    assert page.locator("#numbers tbody tr").count() == 14


def test_reading_pages_work_without_javascript(visit: Open) -> None:
    page = visit("?measure=deficit", java_script_enabled=False)

    expect(page.locator("#map-box")).to_be_hidden()
    expect(page.locator("#layers tbody tr")).to_have_count(49)
    page.click("#layers tbody tr:nth-child(4) a")
    expect(page.locator("h1")).to_contain_text("Layer 3")
    page.click("tbody tr:nth-child(2) a")
    expect(page.locator("h1")).to_contain_text("Layer 3, expert 1")
    page.goto(page.url.partition("/operator/")[0] + "/operator/series")
    expect(page.locator("#numbers tbody tr")).to_have_count(14)


def test_a_device_is_found_paused_and_forgiven_without_javascript_by_keys(visit: Open) -> None:
    page = visit("nodes", java_script_enabled=False)

    page.focus("#q")
    page.keyboard.type("Mei's tablet")
    page.keyboard.press("Enter")
    page.locator("#nodes tbody a").first.press("Enter")
    page.get_by_role("link", name="Pause").press("Enter")
    page.focus("#id_reason")
    page.keyboard.type("tested by keys")
    page.keyboard.press("Enter")
    expect(page.locator(".badge").first).to_have_text("paused")
    expect(page.locator(".events")).to_contain_text("reason: tested by keys, by: olga")
    page.get_by_role("link", name="Forgive").press("Enter")
    page.focus("#id_reason")
    page.keyboard.type("enough")
    page.keyboard.press("Enter")

    expect(page.locator(".badge").first).not_to_have_text("paused")


def test_every_control_has_a_name_and_every_field_a_label(visit: Open) -> None:
    page = visit("")
    for address in (*PAGES, "nodes/add"):
        page.goto(f"{page.url.partition('/operator/')[0]}/operator/{address}")

        nameless = page.evaluate(
            """() => [...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea")]
                .filter((e) => e.checkVisibility())
                .filter((e) => !(e.innerText || "").trim() && !e.getAttribute("aria-label") && !(e.labels || []).length)
                .map((e) => e.outerHTML)"""
        )
        assert nameless == [], address


def test_a_missing_browser_is_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    with pytest.raises(NoBrowser, match="apt-get install chromium"), chromium():
        pass


def test_pictures_are_taken_of_the_pages_that_are_asked_for(browser: Browser, site: Site, tmp_path: Path) -> None:
    from frontend.screenshots.__main__ import take
    from frontend.screenshots.pages import OPERATOR

    shots = [shot for shot in OPERATOR if shot.name in ("operator-coverage", "operator-node-phone")]

    found = take(browser, site, shots, tmp_path)

    assert [path.name for path in found] == ["operator-coverage.png", "operator-node-phone.png"]
    assert all(10_000 < path.stat().st_size < 400_000 for path in found)
