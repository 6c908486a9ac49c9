"""frontend/operator/builds.py: what is on offer, what a file holds, publish, retire, restore."""

import re
from pathlib import Path

import pytest
from django.test import Client
from pytest_django import Settings

from inference.gguf_index import open_index
from inference.stages import stage_fingerprint
from market import commands, queries
from tests.builders import stage_build
from tests.frontend.pages import Page
from tests.model_files import DEMO_MODEL

pytestmark = pytest.mark.django_db
FINGERPRINT = open_index(DEMO_MODEL).fingerprint


@pytest.fixture(autouse=True)
def _models(settings: Settings) -> None:
    settings.MODEL_FOLDERS = [str(DEMO_MODEL.parent)]


def test_a_file_of_a_configured_folder_is_indexed(operator: Client) -> None:
    page = Page(operator.get("/operator/builds", {"path": str(DEMO_MODEL)}).content.decode())

    assert FINGERPRINT in page.text
    assert "32 per layer, 4 used per token" in page.text


@pytest.mark.parametrize("path", ["/etc/passwd", "models/../../etc/passwd", "\0", "~nobody-at-all/x.gguf"])
def test_a_path_outside_the_folders_is_refused_and_not_opened(operator: Client, path: str) -> None:
    answer = operator.get("/operator/builds", {"path": path})

    assert answer.status_code == 200
    assert 'role="alert"' in answer.content.decode()
    assert "root:" not in answer.content.decode()


def test_a_link_that_leads_out_of_a_folder_is_refused(operator: Client, settings: Settings, tmp_path: Path) -> None:
    settings.MODEL_FOLDERS = [str(tmp_path)]
    (tmp_path / "link.gguf").symlink_to("/etc/passwd")

    assert "none of the folders" in operator.get(f"/operator/builds?path={tmp_path}/link.gguf").content.decode()


def test_a_build_is_published_retired_and_restored(operator: Client) -> None:
    published = operator.post("/operator/builds/publish", {"path": str(DEMO_MODEL)})
    on_offer = [build.fingerprint for build in queries.builds()]
    operator.post(f"/operator/builds/{FINGERPRINT}", {"reason": "replaced"})
    retired = queries.builds()
    operator.post(f"/operator/builds/{FINGERPRINT}", {"reason": "better after all"})

    assert published.status_code == 302
    assert (on_offer, retired) == ([FINGERPRINT], [])
    assert [build.fingerprint for build in queries.builds()] == [FINGERPRINT]


def test_stages_are_told_from_experts_and_lead_to_the_page_of_their_model(operator: Client) -> None:
    operator.post("/operator/builds/publish", {"path": str(DEMO_MODEL)})
    commands.publish_build(stage_build(stage_fingerprint(FINGERPRINT), units=2))
    commands.publish_build(stage_build(units=48))

    source = operator.get("/operator/builds").content.decode()

    assert re.findall(r"<td>(stages|experts)</td><td>([^<]+)</td>", source) == [
        ("experts", "8 x 32"),
        ("stages", "2 units"),
        ("stages", "48 units"),
    ]
    assert source.count(f'href="/operator/?build={FINGERPRINT}"') == 2


def test_retiring_without_a_reason_changes_nothing(operator: Client) -> None:
    operator.post("/operator/builds/publish", {"path": str(DEMO_MODEL)})

    assert operator.post(f"/operator/builds/{FINGERPRINT}", {"reason": ""}).status_code == 400
    assert len(queries.builds()) == 1


def test_what_is_no_model_cannot_be_published(operator: Client, settings: Settings, tmp_path: Path) -> None:
    settings.MODEL_FOLDERS = [str(tmp_path)]
    (tmp_path / "text.gguf").write_text("not a model")

    answer = operator.post("/operator/builds/publish", {"path": str(tmp_path / "text.gguf")})

    assert answer.status_code == 400
    assert queries.builds() == []


def test_an_unknown_build_is_404(operator: Client) -> None:
    assert operator.get(f"/operator/builds/{'f' * 32}").status_code == 404
