"""market/api.py: the node API over HTTP, with the one error shape everywhere."""

import json
from datetime import datetime
from typing import Any

import pytest
from django.db import InterfaceError, OperationalError
from django.http import HttpResponse
from django.test import Client
from pytest_django import Settings

from market import commands, presence
from market.policy import Policy
from tests.builders import (
    DEMO_EXPERT_BYTES,
    DIGEST,
    FINGERPRINT,
    OTHER_DIGEST,
    claimed,
    demo_build,
    registered,
    verified,
)

pytestmark = pytest.mark.django_db
OTHER = "f" * 32
NO_MONEY = {"pending": 0, "available": 0, "in_transit": 0, "paid": 0}


class Caller:
    """A device, or somebody without a token, that speaks HTTP."""

    def __init__(self, client: Client, token: str = "") -> None:
        self._client = client
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def get(self, path: str) -> Any:
        return self._client.get(path, headers=self._headers)

    def post(self, path: str, body: object = None) -> Any:
        data = body if isinstance(body, bytes) else json.dumps(body)
        return self._client.post(path, data, content_type="application/json", headers=self._headers)

    def put(self, path: str, body: object = None) -> Any:
        return self._client.put(path, json.dumps(body), content_type="application/json", headers=self._headers)

    def delete(self, path: str) -> Any:
        return self._client.delete(path, headers=self._headers)


@pytest.fixture
def stranger(client: Client) -> Caller:
    commands.publish_build(demo_build())
    return Caller(client)


@pytest.fixture
def bob(client: Client, stranger: Caller) -> Caller:
    return Caller(client, registered().token)


def assert_error(response: HttpResponse, status: int, code: str) -> str:
    """The one assertion about errors: status, shape, code; its message."""
    body = json.loads(response.content)
    assert (response.status_code, set(body)) == (status, {"error"}), body
    assert set(body["error"]) == {"code", "message"}
    assert body["error"]["code"] == code, body
    message: str = body["error"]["message"]
    assert message
    return message


def test_a_device_goes_from_registration_to_a_verified_claim(client: Client, stranger: Caller) -> None:
    answer = stranger.post("/api/nodes", {"name": "Bob's phone", "kernel_class": "numpy", "budget_bytes": 10**6})
    assert answer.status_code == 201
    assert set(answer.json()) == {"node_id", "token"}
    bob = Caller(client, answer.json()["token"])

    demand = bob.get("/api/demand?budget_bytes=1000000").json()
    offer = demand["ranges"][0]
    wish = {"build": FINGERPRINT, "ranges": [{name: offer[name] for name in ("layer", "first", "last")}]}
    claims = bob.post("/api/claims", wish)
    assert claims.status_code == 201
    (claim,) = claims.json()["claims"]
    path = f"/api/slices/{FINGERPRINT}/{claim['layer']}/{claim['first']}-{claim['last']}"
    assert (claim["slice_url"], claim["manifest_url"]) == (path, f"{path}/manifest")
    assert claim["rate_microcredits_per_hour"] == offer["rate_microcredits_per_hour"]
    assert claim["size_bytes"] == 9 * DEMO_EXPERT_BYTES
    assert datetime.fromisoformat(claim["expires_at"]).tzinfo is not None

    delivered = bob.post(f"/api/claims/{claim['claim_id']}/delivered", {"fence": claim["fence"], "sha256": DIGEST})
    assert delivered.json()["claims"][0]["sha256"] == DIGEST
    commands.verify_replica(claim["claim_id"], claim["fence"], DIGEST, "backbone")
    me = bob.get("/api/me").json()
    assert (me["name"], me["claims"][0]["state"], me["reason"]) == ("Bob's phone", "live", None)

    assert bob.delete(f"/api/claims/{claim['claim_id']}").json() == {"released": claim["claim_id"]}
    assert bob.get("/api/me").json()["claims"] == []


def test_demand_tells_builds_presets_prices_and_when_to_ask_again(bob: Caller) -> None:
    answers = [bob.get(f"/api/demand?budget_bytes={4 * DEMO_EXPERT_BYTES}").json() for _ in range(5)]

    (build,) = answers[0]["builds"]
    assert (build["fingerprint"], build["types"], build["experts"], build["experts_covered"]) == (
        FINGERPRINT,
        ["Q4_K"],
        256,
        0,
    )
    assert build["presets"][2] == {"experts": 4, "size_bytes": 4 * DEMO_EXPERT_BYTES}
    first = answers[0]["ranges"][0]
    assert first["size_bytes"] == 4 * DEMO_EXPERT_BYTES
    assert first["microcredits_per_hour_per_megabyte"] == pytest.approx(
        first["rate_microcredits_per_hour"] / (4 * DEMO_EXPERT_BYTES / 1e6), abs=0.001
    )
    polls = {answer["poll_seconds"] for answer in answers}
    assert all(30 <= poll <= 60 for poll in polls)
    assert len(polls) > 1


def test_the_best_for_a_budget_is_claimed_in_one_call(bob: Caller) -> None:
    claims = bob.post("/api/claims", {"best_for_budget_bytes": 40 * DEMO_EXPERT_BYTES}).json()["claims"]

    assert [(claim["layer"], claim["first"], claim["last"]) for claim in claims] == [(0, 0, 32), (1, 0, 8)]


def test_a_device_that_cannot_compute_a_type_is_not_offered_it(bob: Caller) -> None:
    answer = bob.get("/api/demand?types=Q6_K,Q8_0").json()

    assert (answer["ranges"], answer["reason"]) == ([], "types_unsupported")
    assert bob.get("/api/demand?types=Q6_K,Q4_K").json()["reason"] is None
    refused = bob.post("/api/claims", {"best_for_budget_bytes": 10**9, "types": ["Q6_K"]})
    assert_error(refused, 409, "types_unsupported")


def test_a_budget_below_one_expert_is_told_the_minimum(bob: Caller) -> None:
    answer = bob.get("/api/demand?budget_bytes=1000").json()

    assert (answer["ranges"], answer["reason"]) == ([], "budget_too_small")
    assert str(DEMO_EXPERT_BYTES) in answer["message"]
    message = assert_error(bob.post("/api/claims", {"best_for_budget_bytes": 1000}), 422, "budget_too_small")
    assert str(DEMO_EXPERT_BYTES) in message


def test_a_heartbeat_marks_the_device_as_seen(client: Client, stranger: Caller) -> None:
    device = registered()
    claimed(device)

    answer = Caller(client, device.token).post("/api/heartbeat").json()

    assert list(presence.last_seen([device.node_id])) == [device.node_id]
    assert (answer["claims"][0]["layer"], answer["lease_seconds"]) == (0, 120.0)


def test_earnings_and_reasons_are_shown(client: Client, stranger: Caller) -> None:
    device = registered()
    bob = Caller(client, device.token)

    assert bob.get("/api/me").json()["reason"] == "not_claimed"
    claim = claimed(device)
    waiting = bob.get("/api/me").json()
    verified(claim)
    working = bob.get("/api/me").json()

    assert waiting["reason"] == "not_verified"
    assert waiting["message"]
    assert (working["reason"], working["message"], working["balance_microcredits"]) == (None, None, NO_MONEY)


def test_a_suspended_device_can_read_why(client: Client, stranger: Caller) -> None:
    device = registered("Mallory")
    mallory = Caller(client, device.token)
    commands.suspend_node(device.node_id, reason="wrong answers", by="audit")

    me, demand = mallory.get("/api/me").json(), mallory.get("/api/demand").json()
    message = assert_error(mallory.post("/api/claims", {"best_for_budget_bytes": 10**9}), 403, "suspended")

    assert (me["suspended"], me["reason"], demand["reason"]) == (True, "suspended", "suspended")
    assert "wrong answers" in message
    assert "wrong answers" in me["message"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("get", "/api/demand"),
        ("get", "/api/me"),
        ("post", "/api/claims"),
        ("post", "/api/heartbeat"),
        ("delete", "/api/claims/1"),
        ("post", "/api/claims/1/delivered"),
    ],
)
@pytest.mark.parametrize("token", ["", "wrong", "x" * 5000, "Ω", "two words"])
def test_without_a_known_token_everything_is_bad_token(
    client: Client, stranger: Caller, method: str, path: str, token: str
) -> None:
    answer = getattr(Caller(client, token), method)(path)

    assert_error(answer, 401, "bad_token")


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        "text",
        None,
        {"ranges": []},
        {"ranges": [{"layer": 0, "first": 0}]},
        {"ranges": [{"layer": 70_000, "first": 0, "last": 1}]},
        {"ranges": [{"layer": 0, "first": -1, "last": 1}]},
        {"ranges": [{"layer": 0, "first": 0, "last": 1}], "best_for_budget_bytes": 1},
        {"ranges": [{"layer": 0, "first": n, "last": n + 1} for n in range(65)]},
        {"best_for_budget_bytes": 0},
        {"best_for_budget_bytes": 10**30},
        {"best_for_budget_bytes": "much"},
        {"best_for_budget_bytes": 5, "build": "no fingerprint"},
    ],
)
def test_a_claim_of_the_wrong_shape_is_a_bad_request(bob: Caller, body: object) -> None:
    assert_error(bob.post("/api/claims", body), 422, "bad_request")


@pytest.mark.parametrize(
    "query", ["budget_bytes=0", "budget_bytes=-5", "budget_bytes=x", "build=x", f"types={'x' * 1001}"]
)
def test_a_question_of_the_wrong_shape_is_a_bad_request(bob: Caller, query: str) -> None:
    assert_error(bob.get(f"/api/demand?{query}"), 422, "bad_request")


@pytest.mark.parametrize("body", [b"{", b"", b"\xff\xfe", b"[" * 60_000])
def test_a_body_that_is_no_json_is_a_bad_request(bob: Caller, body: bytes) -> None:
    assert_error(bob.post("/api/claims", body), 422, "bad_request")


@pytest.mark.parametrize("size", [70_000, 2_000_000])
def test_a_body_too_large_is_told_so(bob: Caller, size: int) -> None:
    assert_error(bob.post("/api/claims", b'{"build": "' + b"x" * size + b'"}'), 413, "body_too_large")


@pytest.mark.parametrize(
    "body", [{"name": "Bob"}, {"kernel_class": "two words"}, {"name": "\u202e", "kernel_class": "numpy"}]
)
def test_a_registration_out_of_bounds_is_a_bad_request(stranger: Caller, body: object) -> None:
    assert_error(stranger.post("/api/nodes", body), 422, "bad_request")


@pytest.mark.parametrize(
    ("wish", "status", "code"),
    [
        ({"ranges": [{"layer": 0, "first": 0, "last": 33}]}, 422, "range_outside"),
        ({"ranges": [{"layer": 9, "first": 0, "last": 1}]}, 422, "range_outside"),
        ({"ranges": [{"layer": 0, "first": 4, "last": 5}]}, 409, "already_held"),
        ({"ranges": [{"layer": 1, "first": 0, "last": 1}]}, 409, "over_subscribed"),
        ({"ranges": [{"layer": 2, "first": 0, "last": 1}], "build": OTHER}, 404, "unknown_build"),
        ({"best_for_budget_bytes": 10**9, "build": OTHER}, 404, "unknown_build"),
    ],
)
def test_every_refusal_of_a_claim_has_a_code(
    client: Client, stranger: Caller, wish: object, status: int, code: str
) -> None:
    commands.change_policy(Policy(maximum_replicas=1), by="operator", reason="tested")
    device = registered()
    claimed(device, layer=0, first=0, last=8)
    claimed(registered("Alice"), layer=1, first=0, last=8)

    assert_error(Caller(client, device.token).post("/api/claims", wish), status, code)


def test_refusals_about_money_and_coverage_have_codes(client: Client, stranger: Caller) -> None:
    alice, bob = registered("Alice"), Caller(client, registered().token)
    commands.change_policy(Policy(maximum_replicas=1), by="operator", reason="tested")
    commands.claim_best(alice.node_id, 10**9)
    assert_error(bob.post("/api/claims", {"best_for_budget_bytes": 10**9}), 409, "fully_covered")
    commands.change_policy(Policy(budget_microcredits_per_hour=5), by="operator", reason="tested")

    assert_error(bob.post("/api/claims", {"best_for_budget_bytes": 10**9}), 409, "budget_exhausted")
    assert bob.get("/api/demand").json()["reason"] == "budget_exhausted"


def test_without_a_build_there_is_no_work(client: Client) -> None:
    bob = Caller(client, registered().token)

    assert bob.get("/api/demand").json()["reason"] == "no_builds"
    assert_error(bob.post("/api/claims", {"best_for_budget_bytes": 10**9}), 409, "no_builds")


def test_refusals_about_one_claim_have_codes(client: Client, stranger: Caller) -> None:
    device, other = registered(), claimed(registered("Alice"), layer=1)
    bob, claim = Caller(client, device.token), claimed(device)

    def deliver(claim_id: int, fence: int, sha256: str = DIGEST) -> Any:
        return bob.post(f"/api/claims/{claim_id}/delivered", {"fence": fence, "sha256": sha256})

    assert_error(deliver(claim.claim_id, claim.fence + 1), 409, "stale_fence")
    assert_error(deliver(claim.claim_id, claim.fence, "no digest"), 422, "bad_request")
    assert_error(deliver(other.claim_id, other.fence), 404, "unknown_claim")
    assert_error(deliver(2**63 - 1, 1), 404, "unknown_claim")
    verified(claim)
    assert_error(deliver(claim.claim_id, claim.fence, OTHER_DIGEST), 409, "digest_mismatch")
    assert_error(bob.delete(f"/api/claims/{other.claim_id}"), 404, "unknown_claim")
    bob.delete(f"/api/claims/{claim.claim_id}")
    assert_error(deliver(claim.claim_id, claim.fence), 410, "claim_ended")
    assert bob.delete(f"/api/claims/{claim.claim_id}").status_code == 200


@pytest.mark.parametrize("path", ["/api/", "/api/nothing", "/api/claims/x/delivered/y", "/api/nodes/1"])
def test_an_address_that_is_none_is_not_found(bob: Caller, path: str) -> None:
    assert_error(bob.get(path), 404, "not_found")


@pytest.mark.parametrize("claim_id", ["x", "1.5", str(2**63), "-1"])
def test_an_impossible_claim_id_is_a_bad_request(bob: Caller, claim_id: str) -> None:
    assert_error(bob.delete(f"/api/claims/{claim_id}"), 422, "bad_request")


def test_outside_of_the_api_a_missing_page_is_html(client: Client) -> None:
    answer = client.get("/nothing")

    assert answer.status_code == 404
    assert answer["Content-Type"].startswith("text/html")


@pytest.mark.parametrize("path", ["/api/nodes", "/api/claims", "/api/heartbeat"])
def test_a_method_that_is_not_possible_says_which_are(bob: Caller, path: str) -> None:
    answer = bob.get(path)

    assert_error(answer, 405, "method_not_allowed")
    assert answer["Allow"] == "POST"


def test_a_defect_shows_the_shape_and_not_the_reason(bob: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("secret path /var/lib")

    monkeypatch.setattr("market.offers.idle_reason", broken)

    message = assert_error(bob.get("/api/me"), 500, "internal")

    assert "secret" not in message


def test_registrations_from_one_address_are_limited(
    client: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.REGISTRATIONS_PER_MINUTE = 2
    body = {"name": "Mallory", "kernel_class": "numpy"}

    def register(address: str) -> Any:
        return client.post("/api/nodes", body, content_type="application/json", REMOTE_ADDR=address)

    answers = [register("203.0.113.9") for _ in range(3)]

    assert [answer.status_code for answer in answers] == [201, 201, 429]
    assert_error(answers[2], 429, "too_many_requests")
    assert answers[2]["Retry-After"]
    assert register("203.0.113.10").status_code == 201
    assert [register("127.0.0.1").status_code for _ in range(4)] == [201] * 4


def test_a_device_that_asks_too_often_waits_and_others_do_not(client: Client, settings: Settings) -> None:
    settings.DEVICE_REQUESTS_PER_MINUTE = 2
    bob, carol = (Caller(client, registered(name).token) for name in ("Bob's phone", "Carol's laptop"))

    answers = [bob.get("/api/me") for _ in range(3)]

    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert_error(answers[2], 429, "too_many_requests")
    assert 1 <= int(answers[2]["Retry-After"]) <= 60
    assert carol.get("/api/me").status_code == 200


def test_the_openapi_document_lists_every_operation_with_the_error_shape(client: Client) -> None:
    document = client.get("/api/openapi.json").json()

    operations = {(method, path) for path, item in document["paths"].items() for method in item}
    assert operations == {
        ("post", "/api/nodes"),
        ("get", "/api/demand"),
        ("post", "/api/claims"),
        ("delete", "/api/claims/{claim_id}"),
        ("post", "/api/claims/{claim_id}/delivered"),
        ("post", "/api/heartbeat"),
        ("get", "/api/me"),
        ("get", "/api/me/statement.csv"),
        ("post", "/api/me/token"),
        ("put", "/api/me/payee"),
        ("put", "/api/me/leave"),
    }
    for item in document["paths"].values():
        for operation in item.values():
            error = operation["responses"]["422"]["content"]["application/json"]["schema"]
            assert error == {"$ref": "#/components/schemas/ErrorOut"}


def test_there_is_a_page_with_the_documentation(client: Client) -> None:
    answer = client.get("/api/docs")

    assert answer.status_code == 200
    assert b"openapi.json" in answer.content


def test_a_lost_cache_is_an_outage_that_passes_not_a_defect(
    bob: Caller, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    backend = "django.core.cache.backends.redis.RedisCache"
    settings.CACHES = {"default": {"BACKEND": backend, "LOCATION": "redis://127.0.0.1:1/0"}}

    answer = bob.post("/api/heartbeat")

    assert (answer.status_code, answer["Retry-After"]) == (503, "5")
    assert answer.json()["error"]["code"] == "cache_unreachable"
    ours = [record for record in caplog.records if record.name == "market.api_errors"]
    assert [record.levelname for record in ours] == ["WARNING"]
    assert ours[0].exc_info is None


@pytest.mark.parametrize("lost", [OperationalError, InterfaceError])
def test_a_lost_database_is_an_outage_and_no_defect(
    bob: Caller, monkeypatch: pytest.MonkeyPatch, lost: type[Exception]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise lost("the connection is closed")

    monkeypatch.setattr("market.queries.authenticate", fail)
    answer = bob.post("/api/heartbeat")

    assert (answer.status_code, answer["Retry-After"]) == (503, "5")
    assert answer.json()["error"]["code"] == "database_unreachable"


def test_a_device_is_told_what_operators_wrote_newest_first(client: Client) -> None:
    device = registered()
    commands.message_node(device.node_id, "Are you on battery?", by="olga")
    commands.message_node(device.node_id, "Thank you.", by="olga")

    said = Caller(client, device.token).get("/api/me").json()["messages"]

    assert [message["text"] for message in said] == ["Thank you.", "Are you on battery?"]
    assert {*said[0]} == {"at", "text"}
