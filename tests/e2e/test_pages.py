"""The pages in a real browser against the real server: phone and desktop, light and dark, keyboard, no script.

Set SCREENSHOTS to a folder to keep a picture of every page.
"""

import os
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.live_server import LiveServer, live_server
from tests.e2e.processes import Running, running

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

PHONE, DESKTOP = {"width": 360, "height": 740}, {"width": 1280, "height": 900}
FIRST_LOAD_BYTES = 200_000
Open = Callable[..., Page]


@pytest.fixture(scope="module")
def server(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("pages"), "--workers", "2") as started:
        yield started


@pytest.fixture
def visit(browser: Browser, server: LiveServer) -> Iterator[Open]:
    """Opens an address in a browser of its own; at the end no page may have complained about anything."""
    complaints: list[str] = []
    contexts = []

    def open_page(address: str, **options: Any) -> Page:
        context = browser.new_context(**{"viewport": DESKTOP, **options})
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(server.run.url + address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    # Chromium notes every refusal of a request; a test that provokes one means it.
    assert [text for text in complaints if "status of 400" not in text] == []


def keep(page: Page, name: str) -> None:
    folder = os.environ.get("SCREENSHOTS")
    if folder:
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


def width_of(page: Page) -> int:
    width: int = page.evaluate("document.documentElement.scrollWidth")
    return width


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_every_page_fits_its_screen_and_can_be_read(visit: Open, viewport: dict[str, int], scheme: str) -> None:
    for address, name in (("/", "playground"), ("/status", "swarm"), ("/join", "join")):
        page = visit(address, viewport=viewport, color_scheme=scheme)
        keep(page, f"{name}-{viewport['width']}-{scheme}")

        assert width_of(page) == viewport["width"], address
        assert min(contrasts(page)) >= 4.5, address


def contrasts(page: Page) -> list[float]:
    """The contrast of every visible text with what is behind it (WCAG 2: 4.5 is the least)."""
    found: list[float] = page.evaluate(
        """() => {
            const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
            const light = (colour) => {
                const [r, g, b] = numbers(colour).map((v) => v / 255)
                    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
                return 0.2126 * r + 0.7152 * g + 0.0722 * b;
            };
            const behind = (element) => {
                for (let at = element; at; at = at.parentElement) {
                    const colour = getComputedStyle(at).backgroundColor;
                    if (numbers(colour)[3] !== 0) { return colour; }
                }
                return "rgb(255, 255, 255)";
            };
            return [...document.querySelectorAll("body *")]
                .filter((e) => e.checkVisibility() && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
                .filter((e) => !e.closest("svg") && !e.closest(".skip"))
                .map((e) => {
                    const pair = [light(getComputedStyle(e).color), light(behind(e))].sort((a, b) => b - a);
                    return (pair[0] + 0.05) / (pair[1] + 0.05);
                });
        }"""
    )
    return found


def test_neighbouring_levels_of_the_map_differ_in_lightness(visit: Open) -> None:
    for scheme in ("light", "dark"):
        page = visit("/status", color_scheme=scheme)
        levels: list[float] = page.evaluate(
            """() => [0, 1, 2, 3, 4, 5].map((level) => {
                const colour = getComputedStyle(document.querySelector(`.legend .level-${level}`)).fill;
                const [r, g, b] = colour.match(/\\d+/g).map((v) => v / 255)
                    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
                return 0.2126 * r + 0.7152 * g + 0.0722 * b;
            })"""
        )
        ordered = sorted(levels, reverse=scheme == "light")

        assert levels == ordered
        assert all((max(a, b) + 0.05) / (min(a, b) + 0.05) >= 1.2 for a, b in pairwise(levels))


def test_the_prompt_box_shows_the_answer_while_it_grows_and_stops(visit: Open, server: LiveServer) -> None:
    page = visit("/", viewport=PHONE)
    page.get_by_label("Text to continue").fill("The whale came up")
    page.get_by_role("button", name="Send").click()
    answer = page.locator("#answer")

    expect(answer).to_have_text(re.compile("^The whale came up.+"))
    growing = answer.inner_text()
    expect(page.get_by_role("button", name="Send")).to_be_enabled(timeout=20_000)
    finished = answer.inner_text()
    keep(page, "answer-360-light")

    assert finished.startswith("The whale came up")
    assert len(finished) > len(growing)
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    assert server.stats()["failures"] == []


def test_a_refusal_is_shown_beside_the_box(visit: Open) -> None:
    page = visit("/")
    page.get_by_label("Text to continue").fill("   ")
    page.evaluate("document.getElementById('prompt').required = false")

    with page.expect_response("**/try"):
        page.get_by_role("button", name="Send").click()

    expect(page.get_by_role("alert")).to_contain_text("Invalid value for 'prompt'")
    expect(page.get_by_role("button", name="Send")).to_be_enabled()


def test_figures_are_refreshed_without_losing_the_readers_place(visit: Open) -> None:
    page = visit("/status")
    page.get_by_text("The same in numbers").click()
    before = page.locator("#tiles time").get_attribute("datetime")

    expect(page.locator("#tiles time")).not_to_have_attribute("datetime", before or "", timeout=15_000)

    expect(page.locator("#layers tbody tr")).to_have_count(8)
    expect(page.locator("#layers")).to_be_visible()
    expect(page.locator("svg.map rect")).to_have_count(256)


def test_without_javascript_everything_is_there(visit: Open) -> None:
    page = visit("/", java_script_enabled=False, viewport=PHONE)
    page.get_by_label("Text to continue").fill("In the beginning")
    page.get_by_role("button", name="Send").click()

    expect(page.locator("#answer")).to_have_text(re.compile("^In the beginning.+"))
    keep(page, "no-script-360-light")
    page.get_by_role("link", name="Lend a device").first.click()
    page.get_by_label("Name of the device").fill("Bob's phone")
    page.get_by_label("Memory to lend").select_option("8")
    page.get_by_role("button", name="Register the device").click()
    expect(page.locator("#command")).to_contain_text("--budget 884736")


def test_a_device_registers_and_its_worker_shows_up(visit: Open, tmp_path: Path) -> None:
    page = visit("/join?experts=8", viewport=PHONE)
    page.get_by_label("Name of the device").fill("Carol's laptop")
    page.get_by_role("button", name="Register the device").click()
    command = page.locator("#command").inner_text()
    expect(page.locator("#devices .badge")).to_have_text("new")

    with worker(command, tmp_path):
        expect(page.locator("#devices .badge")).to_have_text("working", timeout=40_000)
        keep(page, "device-360-light")
        expect(page.locator("#devices")).to_contain_text("8")
        expect(visit("/status").locator("#tiles")).to_contain_text("of 3 connected", timeout=20_000)


def worker(command: str, folder: Path) -> AbstractContextManager[Running]:
    """The shown command, run as its owner would."""
    token, program, *arguments = shlex.split(command)
    assert program == "python"
    environment = dict([token.split("=", 1)])
    return running([*arguments, "--threads", "1", "--state", str(folder / "state")], folder / "worker.log", environment)


def test_the_keyboard_reaches_everything_in_order(visit: Open) -> None:
    page = visit("/")
    names: list[str] = []
    for _ in range(11):
        page.keyboard.press("Tab")
        names.append(page.evaluate("document.activeElement.innerText || document.activeElement.name"))
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", names

    assert names[0] == "Skip to the content"
    assert names[1:6] == ["Expertswarm", "Playground", "Swarm", "Lend a device", "My devices"]
    assert names[6:] == ["mode", "prompt", "Send", "Parameters", "The same as curl and Python"]


def test_every_control_and_picture_has_a_name(visit: Open) -> None:
    for address in ("/", "/status", "/join"):
        page = visit(address)
        nameless = page.evaluate(
            """() => ["button", "a", "input:not([type=hidden])", "select", "textarea", "svg[role=img]", "[role=region]"]
                .flatMap((kind) => [...document.querySelectorAll(kind)])
                .filter((e) => e.checkVisibility())
                .filter((e) => !(e.innerText?.trim() || e.getAttribute("aria-label") || e.labels?.length))
                .map((e) => e.outerHTML)"""
        )

        assert nameless == []
        assert page.evaluate("document.documentElement.lang") == "en"
        assert page.locator("h1").count() == 1


def test_the_first_load_is_small_and_asks_nobody_else(browser: Browser, server: LiveServer) -> None:
    context = browser.new_context()
    page = context.new_page()
    sizes: dict[str, int] = {}
    page.on("response", lambda response: sizes.update({response.url: len(response.body())}))

    page.goto(server.run.url, wait_until="networkidle")
    context.close()

    assert sum(sizes.values()) < FIRST_LOAD_BYTES, sizes
    assert all(url.startswith(server.run.url) for url in sizes)


def test_controls_are_big_enough_for_a_finger(visit: Open) -> None:
    for address in ("/", "/join"):
        page = visit(address, viewport=PHONE)
        heights = page.evaluate(
            """() => [...document.querySelectorAll("button, input:not([type=hidden]), select, nav a, summary")]
                .filter((e) => e.checkVisibility() && !e.closest("label.check"))
                .map((e) => e.getBoundingClientRect().height)"""
        )

        assert min(heights) >= 40, address
