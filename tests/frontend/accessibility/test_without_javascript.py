"""The pages that are read, and their forms, without JavaScript."""

import pytest
from playwright.sync_api import expect

from tests.frontend.accessibility.addresses import READING, Shown
from tests.frontend.accessibility.conftest import Visit, keep

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("shown", READING, ids=lambda shown: shown.name)
def test_a_page_can_be_read(visit: Visit, shown: Shown) -> None:
    page = visit(shown.address, shown.who, java_script_enabled=False)

    expect(page.locator("h1")).to_have_count(1)
    expect(page.locator("main")).not_to_be_empty()
    expect(page.locator("noscript")).to_have_count(0)


def test_a_text_is_continued_and_told_token_by_token(visit: Visit) -> None:
    page = visit("/", java_script_enabled=False, viewport={"width": 360, "height": 740})
    page.locator("#prompt").fill("Once")
    page.get_by_text("Parameters").click()
    page.locator("#max_tokens").fill("6")
    page.get_by_role("button", name="Send").click()

    expect(page.locator("#answer")).to_have_text("Once In the evening the whale came")
    page.get_by_text("Token by token").first.click()
    expect(page.locator("#token-table tbody tr")).to_have_count(6)
    expect(page.locator("#token-table tbody tr").nth(1)).to_contain_text("25")
    keep(page, "answer-360-no-script")


def test_the_map_and_the_chart_are_drawn_by_the_server(visit: Visit) -> None:
    status = visit("/status", java_script_enabled=False)
    owner = visit("/me/", "bob", java_script_enabled=False)

    expect(status.locator("svg.map rect")).to_have_count(256)
    expect(owner.locator("svg.chart rect.held")).to_have_count(30)
    assert owner.locator("svg.chart rect.held").last.bounding_box() is not None
