"""frontend/operator/stages.py: the row of stages above the map, its table, and what is behind a unit."""

import json

import pytest
import redis
from django.test import Client
from pytest_django import Settings

from inference import backbone_status
from inference.gguf_index import open_index
from inference.reports import build_description
from inference.stages import stage_cuts, stage_fingerprint
from market import commands
from tests.builders import (
    FINGERPRINT,
    MORNING,
    claimed,
    demo_build,
    later,
    registered,
    stage_build,
    stage_device,
    verified,
)
from tests.frontend.pages import Page
from tests.inference.statuses import backbone
from tests.model_files import DEMO_MODEL

pytestmark = pytest.mark.django_db

MODEL = open_index(DEMO_MODEL)
STAGES = stage_fingerprint(MODEL.fingerprint)


@pytest.fixture(autouse=True)
def _no_redis(settings: Settings) -> None:
    settings.REDIS_URL = ""
    settings.MODEL_PATH = DEMO_MODEL


@pytest.fixture
def on_offer() -> None:
    """The demo model, whose eight layers are two units of four, and its stages."""
    commands.publish_build(build_description(MODEL), now=MORNING)
    commands.publish_build(stage_build(STAGES, units=stage_cuts(MODEL).units), now=MORNING)


def coverage(client: Client, query: str = "") -> Page:
    answer = client.get(f"/operator/{query}")
    assert answer.status_code == 200
    return Page(answer.content.decode())


def test_without_stages_one_line_says_how_to_lend_one(operator: Client) -> None:
    commands.publish_build(demo_build(), now=MORNING)

    page = coverage(operator)

    assert "python -m inference.stage --server http://testserver" in page.text_of("stages-said")
    assert not page.has_id("stages")
    assert not page.has_id("stage-table")


def test_a_stage_build_that_no_host_ever_came_for_is_no_row(operator: Client, on_offer: None) -> None:
    assert not coverage(operator).has_id("stages")


def test_the_row_and_its_table_name_layers_and_what_nobody_holds(operator: Client, on_offer: None) -> None:
    verified(claimed(stage_device(), 0, 1, 2))

    page = coverage(operator)

    assert "1 of 2 runs of layers are held. Nobody holds layers 0–3." in " ".join(page.text_of("stages-said").split())
    assert page.attribute("stages", "data-build") == STAGES
    assert [row[:3] for row in page.table("stage-rows")] == [["layers 0–3", "0", "1"], ["layers 4–7", "1", "1"]]
    assert 'data-first="4" data-last="8"' in page.source


def test_a_unit_has_its_number_where_this_server_does_not_hold_the_model(operator: Client) -> None:
    commands.publish_build(demo_build(), now=MORNING)
    commands.publish_build(stage_build(stage_fingerprint(FINGERPRINT), units=12), now=MORNING)
    verified(claimed(stage_device(), 0, 0, 3))

    page = coverage(operator)

    assert "Nobody holds units 3–11." in " ".join(page.text_of("stages-said").split())
    assert page.table("stage-rows")[11][:2] == ["unit 11", "0"]
    assert "data-first" not in page.source


@pytest.mark.parametrize(("measure", "shown"), [("reward", "reward"), ("demand", "demand"), ("latency", "replicas")])
def test_the_row_shows_the_maps_measure_where_stages_have_it(
    operator: Client, on_offer: None, measure: str, shown: str
) -> None:
    stage_device()

    page = coverage(operator, f"?measure={measure}")
    cells = json.loads(operator.get(f"/operator/cells?build={STAGES}&measure={shown}").content)

    assert page.attribute("stages", "data-measure") == shown
    assert cells["measure"] == shown
    assert (cells["layers"], cells["experts"]) == ([0], 2)


def test_what_changes_is_a_fragment_with_the_same_names(operator: Client, on_offer: None) -> None:
    verified(claimed(stage_device(), 0, 0, 2))

    source = operator.get(f"/operator/stages?build={MODEL.fingerprint}").content.decode()

    assert "Together they hold the whole model." in source
    assert source.count("hx-swap-oob") == 2
    assert all(coverage(operator).has_id(name) for name in ("stages-said", "stage-rows"))


def test_a_unit_tells_who_holds_it_and_who_held_it_by_layers(operator: Client, on_offer: None) -> None:
    alice, carol = stage_device("Alice's server"), stage_device("Carol's server")
    verified(claimed(alice, 0, 0, 2))
    before = claimed(carol, 0, 1, 2)
    commands.release_claim(carol.node_id, before.claim_id, now=later(60))

    page = operator.get(f"/operator/cell/{STAGES}/0/1").content.decode()
    fragment = operator.get(f"/operator/cell/{STAGES}/0/1", headers={"HX-Request": "true"}).content.decode()
    text = Page(page).text

    assert "Stage: layers 4–7" in text
    assert text.index("Alice's server") < text.index("layers 0–7") < text.index("Carol's server")
    assert "xpert" not in Page(f'<div id="cell">{fragment}</div>').text
    assert operator.get(f"/operator/layer/{STAGES}/0").status_code == 404


def test_stages_that_a_backbone_can_use_are_told_with_their_ring(
    operator: Client, on_offer: None, swarm: "redis.Redis"
) -> None:
    alice = stage_device("Alice's server")
    known = {"10.0.0.6:9200": [4, 8], "10.0.0.5:9200": [0, 4], f"{alice.node_id}/7": [0, 8]}
    said = {"is_whole": True, "stages": known, "steps": 12, "rings_lost": 1, "replayed_tokens": 40}
    backbone_status.publish(swarm, "b1", backbone(build=MODEL.fingerprint, rings=said))

    text = " ".join(coverage(operator).text_of("stages-said").split())

    named = "10.0.0.5:9200 (layers 0–3), 10.0.0.6:9200 (layers 4–7)"
    page = Page(operator.get(f"/operator/nodes/{alice.node_id}").content.decode())
    assert f"Backbone b1 can use 1 stage of the market, {named}." in text
    assert "1 backbones that can take it into rings now" in page.text
    assert "They make a ring. Steps: 12, stages lost: 1." in text


def test_a_worker_is_no_stage(operator: Client, on_offer: None) -> None:
    registered()

    assert not coverage(operator).has_id("stages")
