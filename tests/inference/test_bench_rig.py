"""Placement of experts for the benchmarks of the throughput fabric."""

from itertools import pairwise

import numpy as np

from inference.benchmarks.rig.door import claims_of
from inference.benchmarks.rig.placement import Member, by_demand, cuts_of, even, imbalance
from inference.verify.local_swarm import Range


def zipf(layers: int, experts: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    random = np.random.default_rng(7)
    return np.stack([random.permutation(1000.0 / np.arange(1, experts + 1)) for _ in range(layers)])


def test_an_even_cut_gives_every_expert_to_one_worker() -> None:
    held = even((0, 1), 32, 3)

    assert [run.last - run.first for run in held[0]] == [10, 10]
    assert sorted(e for runs in held for run in runs if run.layer == 1 for e in range(run.first, run.last)) == [
        *range(32)
    ]


def test_a_cut_by_demand_leaves_no_run_empty() -> None:
    assert cuts_of(np.array([100.0, 1, 1, 1]), 4) == [0, 1, 2, 3, 4]
    assert cuts_of(np.array([1.0, 1, 1, 97]), 2) == [0, 3, 4]
    assert cuts_of(np.zeros(4), 2)[1] in (1, 2, 3)


def test_placement_by_demand_asks_every_worker_for_about_as_much() -> None:
    demand = zipf(8, 32)

    placed = by_demand(demand, range(8), 8)

    assert imbalance(demand, placed) < imbalance(demand, even(range(8), 32, 8))
    assert imbalance(demand, placed) < 1.15
    for layer in range(8):
        runs = sorted(run for runs in placed for run in runs if run.layer == layer)
        assert (runs[0].first, runs[-1].last) == (0, 32)
        assert all(one.last == other.first for one, other in pairwise(runs))


def test_a_member_survives_its_journey_to_another_process() -> None:
    member = Member("rtt20", 3, "http://127.0.0.1:1", (Range(0, 4, 8), Range(1, 0, 4)), rows_per_second=50.0)

    assert Member.from_json(member.to_json()) == member
    assert member.name == "rtt20/3"


def test_the_door_leases_what_the_token_says() -> None:
    claims = claims_of([[4, 8, 0, 2], [0, 4, 1]])

    assert [(claim.claim_id, claim.layer, claim.first, claim.last) for claim in claims] == [
        (1, 1, 0, 4),
        (2, 0, 4, 8),
        (3, 2, 4, 8),
    ]
    assert {claim.state for claim in claims} == {"live"}
