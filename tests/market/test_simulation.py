"""market/simulation: the played swarm against the market's rules; short forms of `manage.py simulate market`."""

import json
from io import StringIO

import numpy as np
import pytest
from django.core.management import call_command

from market import fold
from market.management.commands.simulate import LARGE_BUILD
from market.policy import Policy
from market.simulation.coverage_log import CoverageLog
from market.simulation.report import conservation_error, outcome
from market.simulation.swarm import Swarm
from tests.builders import demo_build


@pytest.fixture(scope="module")
def swarm() -> Swarm:
    """A small build, experts as large as the real ones: 40 devices hold 1,024 experts once, with some to spare."""
    build = demo_build(layers=4, experts=256, expert_bytes=5_308_416)
    swarm = Swarm(build, Policy(), 45, seed=3)
    swarm.run(1.0)
    return swarm


def test_the_market_keeps_a_swarm_of_leavers_covered_within_its_budget(swarm: Swarm) -> None:
    found = outcome(swarm, devices=45, hours=1.0, seed=3)

    assert found.share_covered > 0.95
    assert found.departures > 20
    assert found.conservation_error == 0
    assert 0 < found.most_spent_in_an_hour <= found.budget_microcredits_per_hour
    assert found.most_reserved_per_hour <= found.budget_microcredits_per_hour
    assert found.gaps * found.mean_gap_seconds > 0


def test_its_books_and_caps_are_those_of_the_fold(swarm: Swarm) -> None:
    state = swarm.log.state
    reserved = sum(layer.reserved_microcredits_per_hour for layer in state.layers.values())
    live = [claim for claim in state.claims.values() if claim.state in ("pending", "live")]

    assert swarm.log.purse(swarm.moment()).reserved_microcredits_per_hour == reserved
    assert reserved == sum(claim.cap_microcredits_per_hour for claim in live)
    assert conservation_error(state) == 0
    state.postings[0].amount_microcredits += 1
    assert conservation_error(state) > 0
    state.postings[0].amount_microcredits -= 1


def test_nobody_who_left_is_counted_as_holding(swarm: Swarm) -> None:
    live = np.zeros(swarm.coverage.shape, np.int32)
    for device in swarm.online.values():
        for claim_id in device.claims:
            claim = swarm.log.state.claims[claim_id]
            if claim.state == "live":
                live[claim.layer, claim.first : claim.last] += 1

    assert (live == swarm.coverage.held).all()
    assert (swarm.replicas() >= live).all()


def test_the_same_seed_tells_the_same_story() -> None:
    stories = []
    for _ in range(2):
        swarm = Swarm(demo_build(layers=2, experts=64, expert_bytes=5_308_416), Policy(), 8, seed=5)
        swarm.run(0.2)
        stories.append((swarm.log.state.position, swarm.log.state.balances, swarm.coverage.held.tolist()))

    assert stories[0] == stories[1]
    assert isinstance(swarm.log.state, fold.State)


def test_gaps_are_measured_to_the_second_and_only_after_the_warm_up() -> None:
    log = CoverageLog((1, 4), warm_up=10.0)
    log.take(5.0, 0, 0, 4)
    log.drop(8.0, 0, 0, 2)
    log.take(14.0, 0, 0, 1)
    log.drop(20.0, 0, 3, 4)
    log.finish(30.0)

    assert (log.gaps, log.longest_gap, log.gap_seconds) == (3, 20.0, 4.0 + 20.0 + 10.0)


def test_the_command_prints_one_object_and_fails_without_a_result() -> None:
    out = StringIO()

    with pytest.raises(SystemExit):
        call_command("simulate", "market", "--devices", "30", "--hours", "0.05", "--seed", "2", "--json", stdout=out)

    body = json.loads(out.getvalue())
    assert (body["ok"], body["seed"], body["experts"]) == (False, 2, 12_288)
    assert body["conservation_error"] == 0
    assert LARGE_BUILD.problem() == ""
