"""What the tab says: every text of its scripts and every code that it meets is known, in the page's language."""

import json
import re
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client
from django.utils.translation import override
from playwright.sync_api import expect
from pytest_django import Settings

from frontend.worker_texts import CODES, TEXTS, language
from inference.errors import GGUFError, UnknownBuild
from market.errors import MarketError
from relay.codes import RejectCode
from tests.browser_worker import tab
from tests.browser_worker.tab import Phone, choose, hide

ROOT = Path(settings.BASE_DIR)
SCRIPTS = ROOT / "frontend" / "static" / "worker"
# What a device is refused, beside the errors of market and files, and why it earns nothing.
REFUSED = re.compile(r'(?:error_response|_Refusal)\(\s*\d+, "(\w+)"')
IDLE = re.compile(r'^    "(\w+)": "[^"]+",$', re.MULTILINE)
# Of the market, but never said to a device: accounts' and payouts' pages have them, and keys that no device gives.
NOT_OF_DEVICES = {
    "market_error", "append_only", "key_reused", "invites_used", "device_cap_reached", "not_available",
    "nothing_to_pay", "same_person", "unknown_payout", "wrong_state", "provider_failed", "incident_in_force",
    "bad_backup", "books_differ", "database_not_empty",
}  # fmt: skip
CHINESE = re.compile(r"[\u4e00-\u9fff]")
# One text, or a choice between two.
SAID = re.compile(r'\bsay\([^"()]*"([^"\n]+)"(?:\s*:\s*"([^"\n]+)")?')


def test_every_text_of_the_scripts_is_handed_to_them() -> None:
    source = "\n".join(path.read_text() for path in SCRIPTS.glob("*.js"))

    said = {text for call in SAID.findall(source) for text in call if text}

    assert len(said) > 40
    assert said - set(TEXTS) == set()
    assert [text for text in TEXTS if f'"{text}"' not in source] == []


@pytest.mark.django_db
def test_the_page_hands_over_the_texts_of_its_language_only(client: Client, settings: Settings) -> None:
    settings.REDIS_URL = ""

    def texts(language: str) -> dict[str, str]:
        source = client.get("/worker", headers={"accept-language": language}).content.decode()
        found = re.search(r'<script id="language" type="application/json">(.*?)</script>', source)
        assert found is not None
        parsed: dict[str, str] = json.loads(found[1])["texts"]
        return parsed

    assert texts("en") == {}
    chinese = texts("zh-CN")
    assert set(chinese) == set(TEXTS)
    assert [text for text in chinese.values() if not CHINESE.search(text)] == ["{done} / {size}"]


def codes_below(error: type[MarketError | GGUFError]) -> set[str]:
    return {error.code}.union(*(codes_below(one) for one in error.__subclasses__()))


def test_every_code_that_the_page_can_meet_has_a_text_in_both_languages() -> None:
    edges = "".join((ROOT / path).read_text() for path in ("market/api_errors.py", "inference/slice_views.py"))
    idle = (ROOT / "market" / "api.py").read_text().partition("_IDLE_MESSAGES = {")[2]
    met = (codes_below(MarketError) - NOT_OF_DEVICES) | codes_below(GGUFError) | {UnknownBuild.code, *RejectCode}
    met |= {*REFUSED.findall(edges), *IDLE.findall(idle), "cache_unreachable", "database_unreachable", "forbidden"}
    met |= {"slice_changed", "range_required"}

    with override("en"):
        english = language()["codes"]
    with override("zh-hans"):
        chinese = language()["codes"]

    assert set(CODES) == met
    assert [code for code, text in english.items() if CHINESE.search(text)] == []
    assert [code for code, text in chinese.items() if not CHINESE.search(text)] == []


@pytest.mark.e2e
@pytest.mark.browser
def test_a_tab_works_in_chinese_and_says_so_without_a_network(phone: Phone) -> None:
    page = phone.open(phone.https, locale="zh-CN")
    page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    expect(page.locator("#state")).to_have_text("已关闭：没有出借任何内容")
    assert choose(page, tab.ONE_EXPERT) == "5.3 MB: 1 个专家"

    page.locator("#lend").click()
    expect(page.locator("#state")).to_contain_text("正在服务 第", timeout=60_000)
    hide(page, True)
    expect(page.locator("#state")).to_contain_text("已暂停：此标签页被隐藏")
    hide(page, False)
    expect(page.locator("#state")).to_contain_text("正在服务 第", timeout=60_000)
    page.locator("#stop").click()
    expect(page.locator("#state")).to_have_text("已停止；全部归还", timeout=15_000)

    page.context.set_offline(True)
    page.reload()
    expect(page.get_by_role("heading", level=1)).to_have_text("没有网络")
    page.context.set_offline(False)
    phone.complaints.clear()  # the browser notes what it could not fetch
