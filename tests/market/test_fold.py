"""market/fold.py: facts that fit, and histories that contradict themselves."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from market.demand import pack_counts
from market.errors import BrokenHistory, Unbalanced
from market.events import (
    BuildPublished,
    ClaimExpired,
    ClaimGranted,
    ClaimReleased,
    DemandObserved,
    Event,
    NodeRegistered,
    NodeSuspended,
    ReplicaLost,
    ReplicaVerified,
    SliceDelivered,
    WorkCredited,
    WorkLine,
)
from market.fold import State, apply, fold
from market.hours import hour_of
from market.ledger import Posting, credit_postings
from tests.builders import DIGEST, FINGERPRINT, MORNING, demo_build, later
from tests.market.test_codec import recorded

PUBLISHED = BuildPublished(demo_build(), MORNING)
BOB = NodeRegistered("bob", "numpy", None, "0" * 64, MORNING)
GRANTED = ClaimGranted(1, 1, "bob", FINGERPRINT, 3, 4, 12, 8 * 110_592, 10_000_000, 500, MORNING)
VERIFIED = ReplicaVerified(1, FINGERPRINT, 3, DIGEST, "backbone", later(9))


def folded(*events: Event) -> State:
    return fold(recorded(list(events)))


def credit(key: str, amount: int, end_seconds: float, *, rows: int = 10) -> WorkCredited:
    work = (WorkLine(3, rows, 1, amount),)
    return WorkCredited(
        key,
        FINGERPRINT,
        "bob",
        later(end_seconds - 60),
        later(end_seconds),
        work,
        True,
        credit_postings("bob", amount),
        later(end_seconds),
    )


def test_a_grant_counts_as_replicas_and_reserves_its_cap() -> None:
    state = folded(PUBLISHED, BOB, GRANTED)

    layer = state.layers[FINGERPRINT, 3]
    assert layer.replicas.tolist() == [0] * 4 + [1] * 8 + [0] * 20
    assert layer.reserved_microcredits_per_hour == 500
    assert state.claims[1].state == "pending"


def test_a_claim_goes_from_pending_over_live_to_its_end() -> None:
    delivered = SliceDelivered(1, FINGERPRINT, 3, DIGEST, later(5))
    lost = ReplicaLost(1, FINGERPRINT, 3, "disconnected", later(20))
    expired = ClaimExpired(1, FINGERPRINT, 3, later(20), later(150))

    state = folded(PUBLISHED, BOB, GRANTED, delivered)
    seen = [(state.claims[1].state, state.claims[1].sha256)]
    for event in (VERIFIED, lost, VERIFIED, expired):
        version = state.versions[f"build/{FINGERPRINT}/layer/3"] + 1
        apply(state, replace(recorded([event])[0], position=state.position + 1, version=version))
        seen.append((state.claims[1].state, state.claims[1].sha256))

    assert seen == [("pending", DIGEST), ("live", DIGEST), ("pending", DIGEST), ("live", DIGEST), ("expired", DIGEST)]
    assert state.layers[FINGERPRINT, 3].replicas.sum() == 0
    assert state.layers[FINGERPRINT, 3].reserved_microcredits_per_hour == 0
    assert (state.claims[1].end_reason, state.claims[1].ended_at) == ("lease_expired", later(150))


def test_a_credit_moves_money_counts_rows_and_fills_the_hour() -> None:
    state = folded(PUBLISHED, BOB, GRANTED, credit("a", 300, 3600), credit("b", 150, 3660), credit("c", 0, 3720))

    claim = state.claims[1]
    assert (claim.earned_microcredits, claim.hour, claim.hour_microcredits) == (450, later(3600), 150)
    assert state.balances["node/bob/pending"].balance_microcredits == 450
    assert "treasury" not in state.balances
    assert sum(posting.amount_microcredits for posting in state.postings) == 0
    assert state.credited[FINGERPRINT, "bob", 3].rows == 30


def test_work_of_an_ended_claim_is_still_booked() -> None:
    state = folded(PUBLISHED, BOB, GRANTED, ClaimReleased(1, FINGERPRINT, 3, "owner", later(30)), credit("a", 7, 60))

    assert state.claims[1].earned_microcredits == 7


def test_demand_is_a_mean_that_leans_to_the_present() -> None:
    def observed(count: int, start: float, end: float) -> DemandObserved:
        packed, scale = pack_counts(np.full((8, 32), count))
        return DemandObserved(FINGERPRINT, 8, 32, scale, packed, later(start), later(end))

    first = folded(PUBLISHED, observed(100, 0, 3600))
    second = folded(PUBLISHED, observed(100, 0, 3600), observed(300, 3600, 7200))

    assert (first.demand[FINGERPRINT].rows_per_hour == 100).all()
    assert (second.demand[FINGERPRINT].rows_per_hour == 200).all()
    assert second.demand[FINGERPRINT].observed_until == later(7200)


@pytest.mark.parametrize(
    ("seconds", "hour"),
    [(-1, -3600), (0, -3600), (0.001, 0), (3599, 0), (3600, 0), (3601, 3600)],
)
def test_a_window_belongs_to_the_hour_in_which_it_ends(seconds: float, hour: float) -> None:
    assert hour_of(MORNING + timedelta(seconds=seconds)) == later(hour)


@pytest.mark.parametrize(
    "events",
    [
        [PUBLISHED, PUBLISHED],
        [BOB, BOB],
        [NodeSuspended("bob", "x", "y", MORNING)],
        [PUBLISHED, GRANTED],
        [BOB, GRANTED],
        [PUBLISHED, BOB, replace(GRANTED, layer=8)],
        [PUBLISHED, BOB, replace(GRANTED, last=33)],
        [PUBLISHED, BOB, replace(GRANTED, first=12)],
        [PUBLISHED, BOB, replace(GRANTED, fence=2)],
        [PUBLISHED, BOB, GRANTED, replace(GRANTED, fence=2)],
        [PUBLISHED, BOB, VERIFIED],
        [PUBLISHED, BOB, GRANTED, ClaimReleased(1, FINGERPRINT, 3, "x", MORNING), VERIFIED],
        [PUBLISHED, BOB, credit("a", 5, 60)],
        [DemandObserved(FINGERPRINT, 1, 1, 1, "AAA=", MORNING, later(60))],
        [PUBLISHED, DemandObserved(FINGERPRINT, 8, 32, 1, "AAA=", MORNING, later(60))],
        [PUBLISHED, DemandObserved(FINGERPRINT, 8, 32, 1, "?", MORNING, later(60))],
    ],
)
def test_a_history_that_contradicts_itself_is_broken(events: Sequence[Event]) -> None:
    with pytest.raises(BrokenHistory):
        fold(recorded(list(events)))


def test_postings_that_do_not_balance_are_refused() -> None:
    crooked = replace(credit("a", 5, 60), postings=(Posting("treasury", -5), Posting("node/bob/pending", 6)))

    with pytest.raises(Unbalanced):
        folded(PUBLISHED, BOB, GRANTED, crooked)


@pytest.mark.parametrize("change", [{"position": 3}, {"version": 2}, {"stream": "node/alice"}])
def test_a_gap_or_a_wrong_stream_is_broken(change: dict[str, int]) -> None:
    first, second = recorded([PUBLISHED, BOB])

    with pytest.raises(BrokenHistory):
        fold([first, replace(second, **change)])  # type: ignore[arg-type]


def test_the_pure_modules_run_where_django_is_not_installed() -> None:
    modules = "builds codec coverage demand errors events fair_lock fold ledger placement policy pricing rows"
    program = (
        f"import sys; sys.modules['django'] = None\nfor name in {modules!r}.split(): __import__('market.' + name)\n"
        "assert not {'channels', 'celery', 'ninja'} & set(sys.modules)"
    )

    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
