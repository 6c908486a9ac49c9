"""frontend/operator/access.py: staff only, and acts for those with the permission."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from frontend.operator import access
from frontend.operator.urls import urlpatterns
from tests.builders import registered
from tests.frontend.pages import Page

pytestmark = pytest.mark.django_db
PAGES = ("", "series", "nodes", "builds", "requests", "alerts", "policy")


@pytest.mark.parametrize("page", PAGES)
def test_nobody_sees_a_page_without_logging_in(client: Client, page: str) -> None:
    answer = client.get(f"/operator/{page}")

    assert answer.status_code == 302
    assert answer["Location"] == f"/operator/login?next=/operator/{page}"


@pytest.mark.parametrize("page", PAGES)
def test_a_user_who_is_no_operator_is_told_so(stranger: Client, page: str) -> None:
    answer = stranger.get(f"/operator/{page}")

    assert answer.status_code == 403
    assert "who is no operator" in Page(answer.content.decode()).text


def test_every_address_but_the_login_asks_who_is_there(client: Client) -> None:
    open_to_all = {"operator-login", "operator-logout"}
    given = {"fingerprint": "0" * 32, "number": 0, "expert": 0, "node_id": "n", "name": "ban",
             "job_id": "00000000-0000-4000-8000-000000000000"}  # fmt: skip

    for pattern in urlpatterns:
        if pattern.name not in open_to_all:
            address = "/operator/" + str(pattern.pattern)
            for name, value in given.items():
                for kind in ("str", "int", "uuid", "slug"):
                    address = address.replace(f"<{kind}:{name}>", str(value))
            assert client.post(address).status_code == 302, address


def test_a_fragment_that_a_stranger_asks_for_sends_the_whole_page_to_the_login(client: Client) -> None:
    answer = client.get("/operator/alerts/live", headers={"HX-Request": "true"})

    assert (answer.status_code, answer["HX-Redirect"]) == (204, "/operator/login")


def test_staff_without_the_permission_may_look_and_not_act(looker: Client) -> None:
    bob = registered()

    assert looker.get(f"/operator/nodes/{bob.node_id}").status_code == 200
    refused = looker.post(f"/operator/nodes/{bob.node_id}/pause", {"reason": "because"})

    assert refused.status_code == 403
    assert "market.operate_nodes" in refused.content.decode()


def test_an_operator_logs_in_and_out_again(client: Client) -> None:
    User.objects.create_superuser("olga", password="a long password")

    came = client.post("/operator/login", {"username": "olga", "password": "a long password", "next": ""})
    seen = client.get("/operator/")
    went = client.post("/operator/logout")

    assert (came.status_code, came["Location"]) == (302, "/operator/")
    assert seen.status_code == 200
    assert (went.status_code, client.get("/operator/").status_code) == (302, 302)


def test_a_wrong_password_is_refused_in_words_and_a_login_leads_nowhere_else(client: Client) -> None:
    User.objects.create_superuser("olga", password="a long password")

    wrong = client.post("/operator/login", {"username": "olga", "password": "guess", "next": ""})
    away = {"username": "olga", "password": "a long password", "next": "https://evil.example/"}

    assert "correct" in Page(wrong.content.decode()).text
    assert client.post("/operator/login", away)["Location"] == "/operator/"


def test_guessing_passwords_is_slowed_down(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "LOGINS_PER_MINUTE", 2)

    answers = [client.post("/operator/login", {"username": "olga", "password": str(i)}) for i in range(3)]

    assert [answer.status_code for answer in answers] == [200, 200, 429]


@pytest.mark.parametrize("page", PAGES)
def test_every_page_keeps_to_the_policy_and_holds_no_inline_script(operator: Client, page: str) -> None:
    answer = operator.get(f"/operator/{page}")

    assert answer.status_code == 200
    assert "script-src 'self'" in answer["Content-Security-Policy"]
    assert "no-cache" in answer["Cache-Control"]
    assert Page(answer.content.decode()).inline_scripts_and_styles() == []


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.usefixtures("no_redis")
def test_every_page_says_in_order_that_a_store_is_away(operator: Client, page: str) -> None:
    answer = operator.get(f"/operator/{page}")

    assert answer.status_code in (200, 503)
    if answer.status_code == 503:
        assert answer["Retry-After"] == "5"
