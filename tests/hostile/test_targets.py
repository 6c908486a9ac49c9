from django.urls import resolve

from inference.hostile.targets import METHODS, missing, sample, targets
from market.api import api


def test_every_address_of_django_and_of_the_openapi_document_is_a_target() -> None:
    document = api.get_openapi_schema()

    found = targets(document)

    paths = {target.template for target in found}
    assert missing(document, found) == []
    assert {"/", "/v1/generations/{generation_id}/stream", "/api/claims/{claim_id}", "/me/devices/{node_id}/token",
            "/api/slices/{build}/{layer}/{first}-{last}/manifest", "/operator/nodes/{node_id}/{name}",
            "/admin/auth/user/{object_id}/change/", "/payouts/{batch_id}/act"} <= paths  # fmt: skip
    assert len(found) == len(paths) > 150
    assert all(target.methods == METHODS for target in found)


def test_paths_filled_with_ids_lead_to_their_views() -> None:
    found = {target.template: target for target in targets(api.get_openapi_schema())}
    ids = {"build": "0" * 32, "layer": "3", "first": "0", "last": "8", "node_id": "n1"}

    slice_path = found["/api/slices/{build}/{layer}/{first}-{last}"].path(ids)
    node_path = found["/me/devices/{node_id}/token"].path(ids)

    assert resolve(slice_path).kwargs == {"build": "0" * 32, "layer": "3", "first": "0", "last": "8"}
    assert resolve(node_path).url_name == "me-token"


def test_bodies_follow_the_document() -> None:
    document = api.get_openapi_schema()
    bodies = {target.template: dict(target.bodies) for target in targets(document)}

    claim = bodies["/api/claims"]["POST"]

    assert set(claim) == {"build", "ranges", "best_for_budget_bytes", "types"}
    assert claim["build"] == "0" * 32
    assert sample({"type": "integer", "minimum": 5}, document) == 5
