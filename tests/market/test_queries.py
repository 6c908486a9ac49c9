"""market/queries.py: what other apps ask."""

import numpy as np
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from market import commands, queries
from tests.builders import FINGERPRINT, claimed, demo_build, registered, verified

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _published() -> None:
    commands.publish_build(demo_build())


def test_coverage_counts_pending_and_live_and_live_coverage_only_live() -> None:
    verified(claimed(registered("Alice"), layer=2, first=0, last=8))
    claimed(registered("Bob"), layer=2, first=4, last=12)

    assert queries.coverage(FINGERPRINT)[2].tolist() == [1] * 4 + [2] * 4 + [1] * 4 + [0] * 20
    assert queries.live_coverage(FINGERPRINT)[2].tolist() == [1] * 8 + [0] * 24
    assert queries.coverage(FINGERPRINT).dtype == np.uint16
    summary = queries.coverage_summary(FINGERPRINT)
    assert (summary.experts, summary.covered, summary.at_target) == (256, 12, 12)


def test_claims_are_listed_per_node_and_per_build() -> None:
    alice, bob = registered("Alice"), registered("Bob")
    first, second = claimed(alice, layer=0), claimed(bob, layer=1)

    assert [claim.claim_id for claim in queries.node_claims(alice.node_id)] == [first.claim_id]
    assert [claim.claim_id for claim in queries.open_claims(FINGERPRINT)] == [first.claim_id, second.claim_id]
    assert queries.claim(second.claim_id) == queries.node_claims(bob.node_id)[0]
    assert queries.claim(99) is None
    assert queries.node("nobody") is None
    assert queries.node_names([alice.node_id, bob.node_id, "nobody"]) == {alice.node_id: "Alice", bob.node_id: "Bob"}


def test_what_the_relay_asks_for_every_session_costs_few_queries() -> None:
    bob = registered()
    for layer in range(8):
        claimed(bob, layer)

    with CaptureQueriesContext(
        connection,
    ) as asked:
        node = queries.authenticate(bob.token)
        assert node is not None
        assert len(queries.node_claims(node.node_id)) == 8

    assert len(asked) == 4
