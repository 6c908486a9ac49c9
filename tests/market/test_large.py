"""market/benchmarks/large.py: a market whose books are right and that is the same every time."""

import pytest

from market import holders, queries, replay
from market.benchmarks import large
from market.models import Claim, Node
from tests.builders import FINGERPRINT, MORNING, demo_build

pytestmark = pytest.mark.django_db


def test_it_has_the_sizes_that_were_asked_for_and_its_books_are_right() -> None:
    large.write(demo_build(), 30, 80, MORNING)

    assert Node.objects.count() == 30
    assert Claim.objects.filter(state__in=("pending", "live")).count() == 80
    assert replay.check().ok
    assert len(holders.holding_nodes()) > 10


def test_some_experts_are_held_often_and_some_by_nobody() -> None:
    large.write(demo_build(), 30, 80, MORNING)

    live = queries.live_coverage(FINGERPRINT)

    assert live.min() == 0
    assert live.max() >= 3
    assert queries.demand(FINGERPRINT).max() > 3 * queries.demand(FINGERPRINT).mean()
