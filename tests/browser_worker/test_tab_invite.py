"""Where registration is by invite: the tab takes the code from its link or a field, and says what is wrong with it."""

import pytest
from playwright.sync_api import expect

from tests.browser_worker import tab
from tests.browser_worker.tab import Phone, choose, says, token_of
from tests.e2e.live_server import LiveServer

pytestmark = [pytest.mark.e2e, pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def server(small_server: LiveServer) -> LiveServer:
    return small_server


def test_the_link_of_an_invite_lets_a_new_device_in(phone: Phone, invite: str) -> None:
    page = phone.open(phone.https, f"#invite={invite}")
    expect(page).to_have_url(f"{phone.https}/worker")
    expect(page.get_by_label("Invite code")).to_have_value(invite)
    choose(page, tab.ONE_EXPERT)

    tab.lend(page)

    expect(page.locator("#admission")).to_be_hidden()
    page.reload()
    tab.serves(page)
    expect(page.locator("#admission")).to_be_hidden()


def test_a_wrong_code_is_refused_in_the_language_of_the_page_and_can_be_put_right(phone: Phone, invite: str) -> None:
    page = phone.open(phone.https, "#invite=guess", locale="zh-CN")
    choose(page, tab.ONE_EXPERT)

    page.locator("#lend").click()

    says(page, "无法注册此设备：此处需要邀请码")
    expect(page.locator("#invite")).to_be_focused()
    phone.complaints.clear()  # the browser notes the 403
    page.locator("#invite").fill(invite)
    page.locator("#lend").click()
    expect(page.locator("#state")).to_contain_text("正在服务 第", timeout=60_000)
    assert token_of(page)
