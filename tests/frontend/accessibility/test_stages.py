"""The row of stages above the operator's map, in a browser: keys, the panel of a stage, the map's measure, a phone."""

import pytest
from playwright.sync_api import Page, expect

from tests.frontend.accessibility.conftest import Visit, keep

pytestmark = pytest.mark.browser

WIDTHS = {"desk": 1280, "phone": 360}


def drawn(page: Page) -> Page:
    """The same page once map and row have their colours."""
    page.wait_for_selector("#legend li")
    page.wait_for_selector("#stages .colour[style]")
    return page


def test_the_row_is_walked_by_arrows_and_enter_shows_who_holds_a_stage(visit: Visit) -> None:
    page = drawn(visit("/operator/", "olga"))
    links = page.locator("#stages a")
    page.locator("#measures a").last.focus()

    page.keyboard.press("Tab")
    expect(links.first).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(links.nth(1)).to_be_focused()
    expect(links.nth(1)).to_have_accessible_name("layers 4–7: 1")
    page.keyboard.press("Enter")

    expect(page.locator("#cell h2")).to_have_text("Stage: layers 4–7")
    expect(page.locator("#cell table").first).to_contain_text("Bob's server")
    page.keyboard.press("Home")
    expect(links.first).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.locator("#map")).to_be_focused()


def test_another_measure_changes_the_row_and_nothing_moves(visit: Visit) -> None:
    page = drawn(visit("/operator/", "olga"))
    place, colour = page.locator("#map").bounding_box(), page.locator("#stages .colour").first.get_attribute("style")
    page.locator("#stages a").first.focus()

    page.click("#measures a[data-measure=reward]")
    expect(page.locator("#stages-measure")).to_contain_text("credits/hour")

    assert page.locator("#stages .colour").first.get_attribute("style") != colour
    page.click("#measures a[data-measure=latency]")
    expect(page.locator("#stages-measure")).to_contain_text("replicas")
    with page.expect_response(lambda response: "/operator/stages" in response.url, timeout=15_000):
        pass
    assert page.locator("#map").bounding_box() == place
    expect(page.locator("#stage-rows tr")).to_have_count(2)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", WIDTHS)
def test_the_row_fits_a_screen(visit: Visit, size: str, scheme: str) -> None:
    page = drawn(visit("/operator/", "olga", viewport={"width": WIDTHS[size], "height": 800}, color_scheme=scheme))
    page.locator("#stages a").last.hover()

    keep(page, f"operator-stages-{size}-{scheme}")

    assert page.evaluate("document.documentElement.scrollWidth") == WIDTHS[size]
    boxes = [link.bounding_box() for link in page.locator("#stages a").all()]
    assert all(box is not None and box["height"] >= 40 for box in boxes)


def test_without_javascript_the_row_is_a_list_of_links_and_a_table(visit: Visit) -> None:
    page = visit("/operator/", "olga", java_script_enabled=False)

    expect(page.locator("#stages-said")).to_contain_text("Nobody holds layers 0–3.")
    expect(page.locator("#stage-rows tr").nth(1)).to_contain_text("layers 4–7")
    page.locator("#stages a").nth(1).click()
    expect(page.locator("h1")).to_contain_text("Stage: layers 4–7")
    expect(page.locator("table").first).to_contain_text("Bob's server")


def test_a_link_made_of_a_stages_token_lends_nothing(visit: Visit, site: str) -> None:
    page = visit("/status")
    answer = page.request.post(f"{site}/api/nodes", data={"name": "rack", "kernel_class": "ggml", "role": "stage"})
    page.goto(f"{site}/worker#token={answer.json()['token']}")

    page.locator("#lend").click()

    expect(page.locator("#state")).to_contain_text("registered for another kind of work", timeout=30_000)
