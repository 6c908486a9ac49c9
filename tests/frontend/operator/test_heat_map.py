"""frontend/operator/heat_map.py: the page, its cells, and what is behind one of them."""

import json

import pytest
import redis
from django.test import Client

from frontend.operator.measures import MEASURES
from market import commands
from tests.builders import FINGERPRINT, MORNING, claimed, demo_build, later, registered, verified
from tests.frontend.pages import Page

pytestmark = pytest.mark.django_db


def test_without_a_build_the_page_says_what_to_do(operator: Client) -> None:
    page = Page(operator.get("/operator/").content.decode())

    assert "No build has been published yet." in page.text
    assert not page.has_id("map")


def test_the_page_has_the_map_and_the_same_as_a_table(operator: Client, swarm: "redis.Redis") -> None:
    commands.publish_build(demo_build(), now=MORNING)
    verified(claimed(registered(), 2, 0, 8))

    page = Page(operator.get("/operator/").content.decode())

    assert page.attribute("map", "data-build") == FINGERPRINT
    assert page.table("layers")[2] == ["2", "0", "0.25", "1", "24", "0"]
    assert "8 of 256" in page.text_of("tiles").replace("\n", " ").replace("  ", " ")


def test_the_figures_above_the_map_are_a_fragment_too(operator: Client, swarm: "redis.Redis") -> None:
    commands.publish_build(demo_build(), now=MORNING)

    source = operator.get(f"/operator/tiles?build={FINGERPRINT}").content.decode()

    assert source.startswith('<dl class="tiles"')
    assert "of 256" in source


@pytest.mark.parametrize("key", MEASURES)
def test_every_measure_has_a_page_a_table_and_cells(operator: Client, swarm: "redis.Redis", key: str) -> None:
    commands.publish_build(demo_build(), now=MORNING)

    page = operator.get(f"/operator/?measure={key}")
    cells = operator.get(f"/operator/cells?build={FINGERPRINT}&measure={key}")
    table = operator.get(f"/operator/layers?build={FINGERPRINT}&measure={key}")

    assert f'data-measure="{key}" aria-current="true"' in page.content.decode()
    assert json.loads(cells.content)["measure"] == key
    assert len(Page(table.content.decode()).table("layers")) == 8


def test_cells_that_did_not_change_are_not_sent_again(operator: Client) -> None:
    commands.publish_build(demo_build(), now=MORNING)
    address = f"/operator/cells?build={FINGERPRINT}&measure=replicas"
    tag = operator.get(address)["ETag"]

    same = operator.get(address, headers={"If-None-Match": tag})
    verified(claimed(registered()))
    other = operator.get(address, headers={"If-None-Match": tag})

    assert (same.status_code, same.content) == (304, b"")
    assert other.status_code == 200
    assert other["ETag"] != tag


def test_a_cell_tells_who_holds_it_and_who_held_it(operator: Client) -> None:
    commands.publish_build(demo_build(), now=MORNING)
    bob, carol = registered("Bob's phone"), registered("Carol's laptop")
    verified(claimed(bob, 1, 0, 8))
    before = claimed(carol, 1, 4, 8)
    commands.release_claim(carol.node_id, before.claim_id, now=later(60))

    page = operator.get(f"/operator/cell/{FINGERPRINT}/1/5").content.decode()
    fragment = operator.get(f"/operator/cell/{FINGERPRINT}/1/5", headers={"HX-Request": "true"}).content.decode()

    assert "Layer 1, expert 5" in page
    assert page.index("Bob&#x27;s phone") < page.index("Carol&#x27;s laptop")
    assert "owner" in Page(page).text
    assert "<html" not in fragment


def test_a_layer_lists_every_expert_by_every_measure(operator: Client) -> None:
    commands.publish_build(demo_build(), now=MORNING)

    source = operator.get(f"/operator/layer/{FINGERPRINT}/7").content.decode()

    assert source.count("<tr>") == 33
    assert "Layer 6" in source
    assert "Layer 8" not in source


@pytest.mark.parametrize(
    "address",
    [
        f"layer/{FINGERPRINT}/8",
        f"cell/{FINGERPRINT}/0/32",
        f"cell/{FINGERPRINT}/8/0",
        f"layer/{'f' * 32}/0",
        f"cells?build={'f' * 32}",
        "layers?build=",
    ],
)
def test_what_is_not_there_is_404(operator: Client, address: str) -> None:
    commands.publish_build(demo_build(), now=MORNING)

    assert operator.get(f"/operator/{address}").status_code == 404
