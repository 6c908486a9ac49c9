"""Everything by keyboard alone: the playground with its tokens, an account, a payout's preview."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.frontend.accessibility.addresses import READING, Shown
from tests.frontend.accessibility.conftest import Visit, keep

pytestmark = pytest.mark.browser

MOST_STOPS = 80


def tab_to(page: Page, selector: str) -> None:
    """Presses Tab until the element has the focus, which must be seen at every stop."""
    for _ in range(MOST_STOPS):
        page.keyboard.press("Tab")
        if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
            return
    pytest.fail(f"{selector} is not reached by Tab")


@pytest.mark.parametrize("shown", READING, ids=lambda shown: shown.name)
def test_the_first_stop_skips_to_the_content(visit: Visit, shown: Shown) -> None:
    page = visit(shown.address, shown.who)

    page.keyboard.press("Tab")

    expect(page.locator(".skip")).to_be_focused()
    box = page.locator(".skip").bounding_box()
    assert box is not None
    assert box["x"] >= 0


def test_a_text_is_continued_and_its_tokens_are_walked_through(visit: Visit) -> None:
    page = visit("/", viewport={"width": 360, "height": 740})
    tab_to(page, "#prompt")
    page.keyboard.press("Control+A")
    page.keyboard.type("Once upon a time")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("button", name="Send")).to_be_enabled(timeout=20_000)
    expect(page.locator("#answer")).to_have_text(re.compile("^Once upon a time In the evening"))
    expect(page.locator("#answer-figures")).to_have_text(re.compile(r"^5\d tokens in"))

    page.locator("#prompt").focus()
    page.keyboard.press("Shift+Tab")  # the strip
    expect(page.locator("#strip")).to_be_focused()
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#token-panel")).to_contain_text("perhaps")
    expect(page.locator("#token-panel")).to_contain_text("Rows computed by workers: ")
    keep(page, "playground-answer-360-light")
    page.set_viewport_size({"width": 1440, "height": 900})
    keep(page, "playground-answer-1440-light")
    page.keyboard.press("Escape")
    expect(page.locator("#token-panel")).to_be_hidden()


def test_a_conversation_keeps_what_was_said_and_is_stopped(visit: Visit) -> None:
    page = visit("/?mode=chat")
    tab_to(page, "#prompt")
    page.keyboard.type("Where was the whale?")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#conversation")).to_contain_text("Where was the whale?")
    expect(page.locator("#answer .token").nth(2)).to_be_visible()
    page.get_by_role("button", name="Stop").press("Enter")
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    stopped = page.locator("#answer").inner_text()

    page.locator("#prompt").fill("And then?")
    page.keyboard.press("Control+Enter")

    expect(page.get_by_role("button", name="Send")).to_be_enabled(timeout=20_000)
    expect(page.locator("#conversation .said")).to_have_count(3)
    expect(page.locator("#conversation")).to_contain_text(stopped.split()[0])
    keep(page, "playground-chat-answer-1280-light")


def test_the_request_as_a_program_follows_the_form(visit: Visit) -> None:
    page = visit("/")
    tab_to(page, "#prompt-form > details:last-of-type > summary")
    page.keyboard.press("Enter")
    expect(page.locator("#code-curl")).to_contain_text('"max_tokens": 96')
    page.get_by_text("Parameters").press("Enter")
    page.locator("#max_tokens").fill("7")
    page.keyboard.press("Tab")

    expect(page.locator("#code-curl")).to_contain_text('"max_tokens": 7')
    expect(page.locator("#code-python")).to_contain_text("max_tokens=7")


def test_a_refusal_is_shown_beside_the_form(visit: Visit) -> None:
    page = visit("/")
    page.evaluate("document.getElementById('max_tokens').type = 'text'")
    page.locator("#max_tokens").evaluate("(field) => { field.value = 'many'; }")

    page.locator("#prompt").press("Control+Enter")

    expect(page.get_by_role("alert")).to_contain_text("'max_tokens'")
    expect(page.get_by_role("button", name="Send")).to_be_enabled()


def test_an_owner_opens_an_account_and_adds_a_phone(visit: Visit) -> None:
    page = visit("/me/")
    tab_to(page, "#up-name")
    page.keyboard.type("dave")
    page.keyboard.press("Tab")
    page.keyboard.type("a quite long password")
    page.keyboard.press("Enter")
    page.wait_for_url("**/me/")
    tab_to(page, "#name")
    page.keyboard.type("Dave's phone")
    page.keyboard.press("Enter")

    expect(page.locator("svg.qr")).to_be_visible()
    expect(page.locator("#own-devices")).to_contain_text("Dave's phone")
    keep(page, "owner-link-1280-light")


def test_a_bookkeeper_previews_the_next_payout(visit: Visit) -> None:
    page = visit("/payouts/draft", "olga")
    tab_to(page, "#id_minimum_microcredits")
    page.keyboard.press("Control+A")
    page.keyboard.type("1")
    page.keyboard.press("Enter")

    expect(page.locator("#differences tbody tr")).to_have_count(2)
    expect(page.locator("#preview-title")).to_contain_text("3 devices")
