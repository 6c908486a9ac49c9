"""frontend/operator/measures.py: one number per expert, as one byte each."""

import base64
import json

import numpy as np
import pytest

from frontend.operator import measures
from frontend.operator.measures import DEFICIT, DEMAND, ERRORS, HOT, LATENCY, MEASURES, REPLICAS, REWARD, Measured
from market import commands
from tests.builders import FINGERPRINT, MORNING, claimed, demo_build, later, registered, verified
from tests.inference.statuses import backbone

pytestmark = pytest.mark.django_db


def measured(*statuses: dict[str, object]) -> Measured:
    return Measured(demo_build(), statuses)


def test_replicas_are_verified_ones_and_what_is_pending_is_no_deficit() -> None:
    commands.publish_build(demo_build(), now=MORNING)
    verified(claimed(registered("Bob"), 0, 0, 8))
    claimed(registered("Carol"), 1, 0, 8)

    replicas, deficit = measured().grid(REPLICAS), measured().grid(DEFICIT)

    assert replicas[0, :8].tolist() == [1.0] * 8
    assert replicas.sum() == 8
    assert deficit[0, :8].sum() == deficit[1, :8].sum() == 0
    assert deficit.sum() == deficit.size - 16


def test_demand_and_reward_come_from_the_market() -> None:
    commands.publish_build(demo_build(), now=MORNING)
    counts = np.zeros((8, 32), np.int64)
    counts[2, 3] = 1000
    commands.observe_demand(FINGERPRINT, counts, MORNING, later(300))

    demand, reward = measured().grid(DEMAND), measured().grid(REWARD)

    assert divmod(int(demand.argmax()), 32) == (2, 3)
    assert reward[2, 3] == reward.max() > reward[0, 0] > 0


def test_latency_is_that_of_the_fastest_holder_and_unknown_without_one() -> None:
    commands.publish_build(demo_build(), now=MORNING)
    slow, quick = registered("slow"), registered("quick")
    verified(claimed(slow, 0, 0, 8))
    verified(claimed(quick, 0, 4, 8))
    owners = {
        slow.node_id: {"seconds": 0.5, "answers": 10},
        quick.node_id: {"seconds": 0.02, "answers": 10},
    }

    grid = measured(backbone(owners=owners)).grid(LATENCY)

    assert grid[0, :8].tolist() == [500.0] * 4 + [20.0] * 4
    assert np.isnan(grid[0, 8])


def test_what_no_backbone_says_is_unknown_and_not_zero() -> None:
    commands.publish_build(demo_build(), now=MORNING)

    assert np.isnan(measured().grid(HOT)).all()
    assert np.isnan(measured().grid(ERRORS)).all()
    assert np.isnan(measured(backbone(build="f" * 32)).grid(ERRORS)).all()


def test_errors_are_those_of_the_devices_that_hold_an_expert() -> None:
    commands.publish_build(demo_build(), now=MORNING)
    bob = registered()
    verified(claimed(bob, 3, 0, 4))

    grid = measured(backbone(failures=[[bob.node_id, "late", 4], [bob.node_id, "closed", 1]])).grid(ERRORS)

    assert grid[3, 0] == 5
    assert grid.sum() == 20


@pytest.mark.parametrize("whole", [True, False])
def test_codes_become_values_again_within_a_hundredth_part(whole: bool) -> None:
    grid = np.array([[0.0, 1.0, 2.0, np.nan], [7.0, 70.0, 200.0, 0.0]])
    measure = REPLICAS if whole else DEMAND

    scale = measures.scale_of(grid, measure)
    codes = measures.codes_of(grid, scale)

    assert (codes == measures.NO_DATA).tolist() == np.isnan(grid).tolist()
    known = ~np.isnan(grid)
    if whole:
        assert (codes[known] == grid[known]).all()
    else:
        share = (codes.astype(float) - 1) / (measures.TOP_CODE - 1)
        values = np.where(codes == 0, 0.0, scale.low * (scale.high / scale.low) ** share)
        assert np.abs(values[known] - grid[known]).max() <= 0.011 * scale.high
        assert ((codes == 0) == (grid == 0)).all()


def test_a_grid_of_equal_values_and_an_empty_one_have_a_scale_too() -> None:
    same = np.full((2, 3), 5.0)
    nothing = np.full((2, 3), np.nan)

    assert set(measures.codes_of(same, measures.scale_of(same, DEMAND)).ravel()) == {measures.TOP_CODE}
    assert set(measures.codes_of(nothing, measures.scale_of(nothing, DEMAND)).ravel()) == {measures.NO_DATA}


@pytest.mark.parametrize("measure", MEASURES.values(), ids=lambda measure: measure.key)
def test_a_payload_of_12_544_cells_stays_below_30_kilobytes(measure: measures.Measure) -> None:
    build = demo_build(layers=49, experts=256)
    grid = np.random.default_rng(1).gamma(2.0, 300.0, (49, 256)).round(2)

    data, tag = measures.payload(build, measure, grid)

    body = json.loads(data)
    assert len(data) < 30_000
    assert len(base64.b64decode(body["cells"])) == 12_544
    assert tag == measures.payload(build, measure, grid)[1]
    assert (body["experts"], len(body["layers"])) == (256, 49)


def test_figures_of_a_layer_tell_zeros_from_the_unknown() -> None:
    grid = np.full((8, 32), np.nan)
    grid[0] = np.arange(32)

    lines = measures.layer_figures(demo_build(), grid)

    assert (lines[0].least, lines[0].mean, lines[0].most, lines[0].zeros, lines[0].unknown) == (0, 15.5, 31, 1, 0)
    assert (lines[1].least, lines[1].mean, lines[1].most, lines[1].zeros, lines[1].unknown) == (None, None, None, 0, 32)
