"""The Chinese texts: compiled as they are written, nearly complete, and seen on the pages.

The compiled file is in the tree, so that a fresh clone needs no gettext. After a change of texts: `make messages`.
"""

import ast
import gettext
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client
from django.utils.translation.template import templatize
from pytest_django import Settings

from tests.frontend.pages import Page

FRONTEND = Path(settings.BASE_DIR) / "frontend"
CATALOGUE = FRONTEND / "locale" / "zh_Hans" / "LC_MESSAGES"
MARKS = {"_", "gettext", "gettext_lazy", "gettext_noop", "ngettext"}
# Those that somebody has just added show in English until they are translated.
LEAST_SHARE = 0.95


def written() -> dict[str, str]:
    """msgid -> msgstr of the .po file."""
    found = {}
    for entry in (CATALOGUE / "django.po").read_text().split("\n\n"):
        parts = re.findall(r'^(msgid|msgstr)(?:\[0\])? "(.*)"$', entry, re.M)
        texts = {name: ast.literal_eval(f'"{text}"') for name, text in parts}
        if texts.get("msgid"):
            found[texts["msgid"]] = texts["msgstr"]
    return found


def compiled() -> dict[str, str]:
    with (CATALOGUE / "django.mo").open("rb") as file:
        catalogue = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
    return {key[0] if isinstance(key, tuple) else key: text for key, text in catalogue.items() if key != ""}


def asked_for() -> Iterator[str]:
    """Every text of templates and Python files that is looked up."""
    for path in FRONTEND.rglob("*.html"):
        yield from _marked(re.sub(r"\b[uU](?=['\"])", "", templatize(path.read_text())))
    for path in FRONTEND.rglob("*.py"):
        yield from _marked(path.read_text())


def _marked(source: str) -> Iterator[str]:
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except SyntaxError:  # what templatize makes of a template is Python in its calls only
        calls = re.findall(r"n?gettext\((?:[^()]|\([^()]*\))*\)", source)
        nodes = [node for call in calls for node in ast.walk(ast.parse(call))]
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MARKS and node.args:
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield first.value


def test_the_compiled_file_is_the_written_one() -> None:
    texts = written()

    assert len(texts) > 500
    assert compiled() == {key: text for key, text in texts.items() if text}


def test_nearly_every_text_is_translated() -> None:
    texts, wanted = written(), set(asked_for())

    missing = sorted(text for text in wanted if not texts.get(text))

    assert len(wanted) > 400
    assert len(missing) <= (1 - LEAST_SHARE) * len(wanted), missing


def test_no_translation_loses_a_value_or_a_link() -> None:
    def values(text: str) -> list[str]:
        return sorted(set(re.findall(r"%\(\w+\)[sd]|\{\w+\}|<a |<code>", text)))

    wrong = [key for key, text in written().items() if text and values(key) != values(text)]

    assert wrong == []


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/", "/status", "/join", "/me/sign-in", "/operator/login"])
def test_pages_are_chinese_for_who_wants_it(client: Client, settings: Settings, path: str) -> None:
    settings.REDIS_URL = ""

    response = client.get(path, headers={"accept-language": "zh-CN,zh;q=0.9,en;q=0.5"})

    page = Page(response.content.decode())
    assert '<html lang="zh-hans">' in page.source
    assert re.search(r"<h1>[^<]*[\u4e00-\u9fff]", page.source)
    assert "Skip to the content" not in page.text
