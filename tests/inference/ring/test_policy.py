"""Who goes to a ring."""

from dataclasses import replace

import pytest

from inference.llama import ContextSettings
from inference.ring.context import Line
from inference.ring.policy import LaneKind, Rings, kind_for


def never(settings: ContextSettings, deadline: float) -> Line:
    raise AssertionError("nothing is opened to decide")


RINGS = Rings(never, lambda: True)


@pytest.mark.parametrize("has_local_lanes", [True, False])
def test_rows_for_trusted_devices_go_to_no_ring_that_strangers_are_on(has_local_lanes: bool) -> None:
    asked = {"low_latency": True, "has_local_lanes": has_local_lanes, "trusted_only": True}

    assert kind_for(rings=replace(RINGS, has_strangers=True), **asked) is LaneKind.LOCAL
    assert kind_for(rings=RINGS, **asked) is LaneKind.RING


def test_everybody_else_may_be_on_a_ring_with_strangers() -> None:
    rings = replace(RINGS, has_strangers=True)

    assert kind_for(low_latency=True, has_local_lanes=True, rings=rings) is LaneKind.RING
    assert kind_for(low_latency=False, has_local_lanes=True, rings=rings) is LaneKind.LOCAL
