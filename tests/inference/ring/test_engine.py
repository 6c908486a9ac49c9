"""An engine with lanes of its own and a lane on a ring of stages: who goes where, and what becomes of a broken ring."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from inference.engine import Engine
from inference.generation import GenerationRequest, TokenEvent
from inference.ring.policy import LaneKind, Rings, kind_for
from inference.sampling import SamplingParameters
from tests.inference.models import DEMO_MODEL, tokens_of
from tests.inference.ring.lines import RunningStage, directory_of
from tests.inference.stage_chain import cut
from tests.relay.live_relay import wait_until

PROMPT = tokens_of("Once upon a time there was a")


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return cut(DEMO_MODEL, tmp_path_factory.mktemp("stages"), 2)


@pytest.fixture
def stages(paths: list[Path]) -> Iterator[list[RunningStage]]:
    with ExitStack() as stack:
        yield [stack.enter_context(RunningStage(path)) for path in paths]


def rings_over(stages: list[RunningStage]) -> Rings:
    directory = directory_of(DEMO_MODEL, [stage.address for stage in stages])
    directory.look()
    return Rings(directory.open_line, directory.has_ring, sequences=2, patience_seconds=0.5)


def generate(
    engine: Engine,
    name: str,
    *,
    low_latency: bool = False,
    after: tuple[int, Callable[[], object]] = (-1, lambda: None),
) -> list[TokenEvent]:
    """Every event. after: what to do when the token of this index is there."""
    events: list[TokenEvent] = []
    done = threading.Event()

    def on_event(event: TokenEvent) -> None:
        events.append(event)
        if event.index == after[0]:
            after[1]()
        if event.finish is not None:
            done.set()

    sampling = SamplingParameters(temperature=0.0, max_tokens=8, low_latency=low_latency, ignore_eos=True)
    engine.submit(GenerationRequest(name, PROMPT, sampling), on_event)
    assert done.wait(30)
    return events


def test_who_asks_for_low_latency_is_served_on_the_ring(stages: list[RunningStage]) -> None:
    engine = Engine(DEMO_MODEL, sequences=1, context_tokens=64, threads=1, rings=rings_over(stages))
    engine.start()
    try:
        calm = generate(engine, "calm")
        rings_before = stages[0].service.ring_count
        quick = generate(engine, "quick", low_latency=True)

        assert rings_before == 0
        assert stages[0].service.ring_count == 1
        assert [event.token for event in quick] == [event.token for event in calm]
    finally:
        engine.stop()
    # The stage hears of it by the end of the connection.
    assert wait_until(lambda: stages[0].service.ring_count == 0)


def test_an_engine_without_lanes_of_its_own_reads_no_weights(stages: list[RunningStage]) -> None:
    engine = Engine(DEMO_MODEL, lanes=0, context_tokens=64, rings=rings_over(stages))
    engine.start()
    try:
        events = generate(engine, "any")
    finally:
        engine.stop()

    assert [event.finish for event in events][-1] == "length"


def test_a_request_ends_with_the_reason_where_no_ring_comes_back(stages: list[RunningStage]) -> None:
    engine = Engine(DEMO_MODEL, lanes=0, context_tokens=64, rings=rings_over(stages))
    engine.start()
    stages[1].stop()
    try:
        events = generate(engine, "any")
    finally:
        engine.stop()

    assert (events[-1].finish, events[-1].error[:24]) == ("error", "no ring of stages could ")


def test_a_request_whose_ring_does_not_come_back_goes_on_in_a_lane(stages: list[RunningStage]) -> None:
    engine = Engine(DEMO_MODEL, sequences=1, context_tokens=64, threads=1, rings=rings_over(stages))
    engine.start()
    try:
        calm = generate(engine, "calm")
        struck = generate(engine, "struck", low_latency=True, after=(3, stages[1].stop))
        next_one = generate(engine, "next")
    finally:
        engine.stop()

    assert [event.index for event in struck] == list(range(8))
    assert [event.token for event in struck] == [event.token for event in calm]
    assert "".join(event.text for event in struck) == "".join(event.text for event in calm)
    assert next_one[-1].finish == "length"


@pytest.mark.parametrize(
    ("low_latency", "has_local_lanes", "has_ring", "expected"),
    [
        (True, True, True, LaneKind.RING),
        (True, True, False, LaneKind.LOCAL),
        (False, True, True, LaneKind.LOCAL),
        (False, False, False, LaneKind.RING),
    ],
)
def test_the_policy(low_latency: bool, has_local_lanes: bool, has_ring: bool, expected: LaneKind) -> None:
    rings = Rings(open_line=lambda settings, deadline: pytest.fail("opened"), has_ring=lambda: has_ring)

    assert kind_for(low_latency=low_latency, has_local_lanes=has_local_lanes, rings=rings) is expected


def test_without_rings_everything_is_local() -> None:
    assert kind_for(low_latency=True, has_local_lanes=True, rings=None) is LaneKind.LOCAL
