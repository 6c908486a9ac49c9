"""A tab lends experts of the 122B's size: a phone's screen, a real server, real dispatches beside a Python worker."""

import ssl
import threading

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.browser_worker import tab
from tests.browser_worker.tab import Phone, choose, generate, lend, me, rows, says, serves, sessions
from tests.e2e.live_server import LiveServer

pytestmark = [pytest.mark.e2e, pytest.mark.browser, pytest.mark.slow]

LEFT_SECONDS = 15.0
# By the clocks that people meet, a minute.
LOST_SECONDS = 60.0 / tab.QUICKER


def serves_and_earns(page: Page, server: LiveServer, token: str) -> None:
    """Rows are computed for real requests, every answer of the new device was audited and right, and money moves."""
    for _ in range(3):
        assert generate(server)
    assert rows(page) > 0
    server.wait_for(lambda: me(server, token)["trust"] > 0, 30, "answers of the tab were audited")
    server.wait_for(lambda: me(server, token)["balance_microcredits"]["pending"] > 0, 40, "its rows were credited")
    tab.ask_now(page)
    expect(page.locator("#pending")).not_to_have_text("0", timeout=20_000)
    seen = me(server, token)
    assert not seen["suspended"]
    assert {claim["state"] for claim in seen["claims"]} == {"live"}


def resumes(page: Page) -> None:
    page.reload()
    serves(page)
    assert tab.downloaded(page) == 0


def test_a_phone_registered_by_link_lends_42_megabytes(phone: Phone, server: LiveServer) -> None:
    token = tab.register(server)
    page = phone.open(phone.https, f"#token={token}")
    expect(page).to_have_url(f"{phone.https}/worker")
    assert page.evaluate("[isSecureContext, crossOriginIsolated]") == [True, True]
    assert page.evaluate("document.documentElement.scrollWidth") <= tab.PHONE["width"]
    assert choose(page, tab.MEGABYTES_42) == "42.0 MB: 7 experts"
    assert "7 experts take 37.2 MB" in page.inner_text("#takes")

    lend(page)

    texts = page.evaluate("said")
    assert any("downloading layer" in text and text.endswith("of 37.2 MB") for text in texts)
    assert tab.downloaded(page) == pytest.approx(37.2, abs=0.1)
    serves_and_earns(page, server, token)
    resumes(page)
    tab.give_back(page)
    assert me(server, token)["claims"] == []


def test_the_same_at_an_address_without_encryption_which_says_so(phone: Phone, server: LiveServer) -> None:
    token = tab.register(server)
    page = phone.open(phone.http, f"#token={token}", color_scheme="dark")
    missing = "[isSecureContext, 'gpu' in navigator, 'wakeLock' in navigator, 'serviceWorker' in navigator]"
    assert page.evaluate(missing) == [False] * 4
    expect(page.locator("#insecure")).to_contain_text("Go on over HTTPS")
    choose(page, tab.MEGABYTES_42)

    lend(page)

    serves_and_earns(page, server, token)
    resumes(page)


def test_a_killed_tab_is_lost_and_no_request_fails(phone: Phone, server: LiveServer) -> None:
    page = phone.open(phone.https)
    choose(page, tab.MEGABYTES_42)
    lend(page)
    live = server.stats()["experts"]["live"]
    before = rows(page)
    texts: list[str] = []
    asking = threading.Thread(target=lambda: texts.extend(generate(server, 48) for _ in range(3)))
    asking.start()
    server.wait_for(lambda: rows(page) > before, 30, "the tab computes")

    phone.kill(page)

    server.wait_for(lambda: sessions(server) == 1, LEFT_SECONDS, "its session has ended")
    asking.join(120)
    assert len(texts) == 3
    assert all(texts)
    server.wait_for(lambda: server.stats()["experts"]["live"] == live - 7, LOST_SECONDS, "its replicas are lost")


def test_the_server_speaks_tls_that_its_authority_vouches_for(phone: Phone, server: LiveServer) -> None:
    certificate = httpx.get(f"{server.run.url}/authority.crt", trust_env=False)
    context = ssl.create_default_context(cadata=certificate.text)

    answer = httpx.get(phone.https.replace(tab.HOST, "127.0.0.1") + "/healthz", verify=context, trust_env=False)

    assert answer.status_code == 200
    assert certificate.headers["Content-Type"] == "application/x-x509-ca-cert"
    assert "trust this server once" in server.up.output
    assert "█" in server.up.output


def test_when_the_web_server_comes_back_the_tab_goes_on(phone: Phone, server: LiveServer) -> None:
    page = phone.open(phone.https)
    choose(page, tab.ONE_EXPERT)
    lend(page)

    server.kill("web")
    says(page, "again")

    serves(page)
    phone.complaints.clear()  # the browser notes each failed connection


def test_a_token_that_nobody_knows_is_refused_in_words(phone: Phone) -> None:
    page = phone.open(phone.https, "#token=nobody")
    choose(page, tab.ONE_EXPERT)

    page.get_by_role("button", name="Lend").click()

    says(page, "does not know this device")
    expect(page.get_by_role("button", name="Lend")).to_be_visible()
    phone.complaints.clear()  # the browser notes the 401
