"""When a tab rests, what it says then, and what it keeps: visibility, battery, storage, no network."""

import pytest
from playwright.sync_api import Page, expect

from tests.browser_worker import tab
from tests.browser_worker.tab import Phone, choose, hide, lend, me, says, serves, sessions
from tests.e2e.live_server import LiveServer

pytestmark = [pytest.mark.e2e, pytest.mark.browser, pytest.mark.slow]

LEFT_SECONDS = 15.0
# Chromium cannot play a battery; the page meets this one through the same interface.
BATTERY = """window.battery = Object.assign(new EventTarget(), { charging: false, level: 0.9 });
navigator.getBattery = async () => window.battery;"""


def set_battery(page: Page, **changes: object) -> None:
    page.evaluate(
        "changes => { Object.assign(battery, changes); battery.dispatchEvent(new Event('levelchange')); }", changes
    )


def test_a_hidden_tab_rests_and_goes_on_when_it_is_seen(phone: Phone, server: LiveServer) -> None:
    page = phone.open(phone.https)
    choose(page, tab.ONE_EXPERT)
    lend(page)
    server.wait_for(lambda: sessions(server) == 2, LEFT_SECONDS, "the tab and the Python worker are connected")

    hide(page, True)
    says(page, "paused: this tab is hidden", 5)
    server.wait_for(lambda: sessions(server) == 1, LEFT_SECONDS, "the tab has left")
    hide(page, False)

    serves(page)
    assert tab.downloaded(page) == pytest.approx(5.3, abs=0.1)


def test_after_a_long_rest_it_claims_what_it_still_has(phone: Phone, server: LiveServer) -> None:
    page = phone.open(phone.https)
    choose(page, tab.MEGABYTES_21)
    lend(page)
    token, held = tab.token_of(page), page.inner_text("#state")

    hide(page, True)
    for claim in me(server, token)["claims"]:
        server.http.delete(f"/api/claims/{claim['claim_id']}", headers={"Authorization": f"Bearer {token}"})
    hide(page, False)

    says(page, held, 60)
    assert tab.downloaded(page) == pytest.approx(15.9, abs=0.1)


def test_it_lends_on_the_charger_only_unless_the_owner_says_otherwise(phone: Phone, server: LiveServer) -> None:
    page = phone.open(phone.https, before=BATTERY)
    choose(page, tab.ONE_EXPERT)
    page.get_by_role("button", name="Lend").click()
    says(page, "not charging")
    assert me(server, tab.token_of(page))["claims"] == []

    page.get_by_label("Also lend while it is not charging").check()
    serves(page)
    set_battery(page, level=0.19)
    says(page, "the battery is at 19%")
    set_battery(page, level=0.24, charging=True)
    says(page, "the battery is at 24%")
    set_battery(page, level=0.26)

    serves(page)
    expect(page.locator("#battery")).to_contain_text("26%, charging")


def test_a_full_disk_is_said_and_costs_only_the_next_download(phone: Phone) -> None:
    page = phone.open(phone.https)
    quota = {"origin": phone.https, "quotaSize": 2_000_000}
    page.context.new_cdp_session(page).send("Storage.overrideQuotaForOrigin", quota)
    choose(page, tab.ONE_EXPERT)

    lend(page)

    expect(page.locator("#storage")).to_contain_text("no more room", timeout=15_000)


def test_a_browser_that_remembers_nothing_still_lends(phone: Phone) -> None:
    refuse = (
        "Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('no', 'SecurityError') } });"
    )
    page = phone.open(phone.https, before=refuse)
    choose(page, tab.ONE_EXPERT)

    lend(page)

    assert page.evaluate("(() => { try { return localStorage.length } catch { return 'refused' } })()") == "refused"


def test_without_a_network_the_installed_page_says_so_and_comes_back(phone: Phone) -> None:
    page = phone.open(phone.https)
    page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    kept = page.evaluate(
        "caches.keys().then(async (names) => (await Promise.all(names.map(async (name) =>"
        " (await (await caches.open(name)).keys()).map((one) => new URL(one.url).pathname)))).flat())"
    )
    assert kept
    assert not [path for path in kept if path.startswith(("/api", "/v1", "/relay")) or path == "/worker"]

    page.context.set_offline(True)
    page.reload()
    expect(page.get_by_role("heading", level=1)).to_have_text("No network")
    page.context.set_offline(False)

    expect(page.get_by_role("button", name="Lend")).to_be_visible(timeout=20_000)
    phone.complaints.clear()  # the browser notes what it could not fetch


def test_the_page_can_be_installed(phone: Phone) -> None:
    page = phone.open(phone.https)
    session = page.context.new_cdp_session(page)

    manifest = session.send("Page.getAppManifest")
    errors = session.send("Page.getInstallabilityErrors")["installabilityErrors"]

    assert manifest["errors"] == []
    assert manifest["url"].endswith("/static/worker/manifest.json")
    assert [error["errorId"] for error in errors if error["errorId"] != "in-incognito"] == []
