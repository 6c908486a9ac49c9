"""Through the whole server: every middleware, and Django's own error pages, as a stranger meets them."""

from urllib.parse import urlencode

import pytest
from django.test import AsyncClient, Client

FORM = "application/x-www-form-urlencoded"
TOO_LARGE = b"name=" + b"x" * (1 << 20)
UNREADABLE = [
    (f"{FORM}; charset=utf-7", b"name=x", 400),
    (FORM, urlencode([(f"field{number}", "x") for number in range(1001)]).encode(), 400),
    (FORM, TOO_LARGE, 413),
    ("multipart/form-data", b"--b", 400),
    ("multipart/form-data; boundary=" + "b" * 300, b"--b", 400),
]
ADDRESSES = ["/me/sign-in", "/join", "/operator/", "/admin/login/", "/nothing/here"]

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize(("kind", "body", "status"), UNREADABLE)
def test_a_form_that_cannot_be_read_is_refused_and_is_no_defect(
    address: str, kind: str, body: bytes, status: int
) -> None:
    client = Client(enforce_csrf_checks=True)

    answer = client.generic("POST", address, body, content_type=kind)

    assert answer.status_code == status
    assert answer["Content-Type"].startswith("text/plain")


@pytest.mark.parametrize(("kind", "body", "status"), UNREADABLE)
async def test_it_is_refused_under_asgi_too(kind: str, body: bytes, status: int) -> None:
    client = AsyncClient(enforce_csrf_checks=True)

    answer = await client.generic("POST", "/me/sign-in", body, content_type=kind)

    assert answer.status_code == status


def test_the_api_keeps_its_own_shape_of_errors() -> None:
    answer = Client().generic("POST", "/api/nodes", b"name=x", content_type=f"{FORM}; charset=utf-7")

    assert answer.status_code == 422
    assert answer.json()["error"]["code"] == "bad_request"
