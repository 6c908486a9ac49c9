"""The link and the QR code that pair a phone: readable, harmless, and the token only where no server sees it."""

import re
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pytest
from django.template import Context, Template
from pytest_django import Settings

from frontend.pairing import pairing, qr_svg
from tests.frontend.pages import Page

TOKEN = "-Az_09" * 7


@pytest.fixture(autouse=True)
def _public(settings: Settings) -> None:
    settings.PUBLIC_URL = "https://swarm.example/"


def test_the_token_stands_in_the_fragment_only() -> None:
    parts = urlsplit(pairing(TOKEN).link)

    assert (parts.scheme, parts.netloc, parts.path, parts.query) == ("https", "swarm.example", "/worker", "")
    assert parts.fragment == f"token={TOKEN}"


def test_another_address_may_be_given_and_odd_letters_are_escaped() -> None:
    link = pairing("a&b#c", "http://192.168.1.7:8000").link

    assert link == "http://192.168.1.7:8000/worker#token=a%26b%23c"


def test_the_code_is_a_square_svg_with_a_name_and_a_quiet_border() -> None:
    root = ElementTree.fromstring(qr_svg("https://swarm.example/worker#token=x", "A <code>"))

    sides = [float(side) for side in root.attrib["viewBox"].split()]
    assert root.attrib["role"] == "img"
    assert sides[2] == sides[3] >= 25 + 2 * 4
    assert "A <code>" in "".join(root.itertext())


def test_the_tag_shows_code_and_link_without_inline_styles() -> None:
    source = Template("{% load pairing %}{% pairing token %}").render(Context({"token": TOKEN}))

    page = Page(source)
    assert f'href="https://swarm.example/worker#token={TOKEN}"' in source
    assert re.search(r"<svg [^>]*class=\"qr\"", source)
    assert page.inline_scripts_and_styles() == []
