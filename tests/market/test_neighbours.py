"""The node API as the worker of the first release used it: its requests are taken, what it reads is there.

Answers may gain keys; these must stay. docs/operations.md promises it for one minor version.
"""

import pytest
from django.test import Client

from market import commands
from tests.builders import FINGERPRINT, demo_build
from tests.market.test_api import Caller

pytestmark = pytest.mark.django_db
CLAIM = {"claim_id", "fence", "build", "layer", "first", "last", "state", "size_bytes", "slice_url", "manifest_url"}
OFFER = {"build", "layer", "first", "last", "size_bytes", "rate_microcredits_per_hour"}


def test_a_device_of_the_version_before_registers_claims_and_leaves(client: Client) -> None:
    commands.publish_build(demo_build())
    node = Caller(client).post("/api/nodes", {"name": "Bob", "kernel_class": "numpy", "budget_bytes": 10**6}).json()
    bob = Caller(client, node["token"])

    demand = bob.get("/api/demand?budget_bytes=1000000").json()
    claims = bob.post("/api/claims", {"best_for_budget_bytes": 10**6, "build": FINGERPRINT, "types": ["Q4_K"]}).json()
    alive = bob.post("/api/heartbeat").json()
    me = bob.get("/api/me").json()
    claim = claims["claims"][0]
    delivered = bob.post(f"/api/claims/{claim['claim_id']}/delivered", {"fence": claim["fence"], "sha256": "ab" * 32})
    gone = bob.delete(f"/api/claims/{claim['claim_id']}")

    assert {"node_id", "token"} <= set(node)
    assert {"ranges", "poll_seconds", "reason", "message"} <= set(demand)
    assert set(demand["ranges"][0]) >= OFFER
    assert set(claim) >= CLAIM
    assert {"claims", "lease_seconds"} <= set(alive)
    assert "node_id" in me
    assert delivered.status_code == 200
    assert gone.json() == {"released": claim["claim_id"]}


def test_a_request_with_a_key_that_this_version_does_not_know_is_taken(client: Client) -> None:
    answer = Caller(client).post("/api/nodes", {"name": "Bob", "kernel_class": "numpy", "added_later": [1]})

    assert answer.status_code == 201
