"""Rings whose steps a coordinator carries from stage to stage: the bits of plain llama.cpp, and what breaks them."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from inference import synthetic
from inference.llama import Context, ContextSettings, Model
from inference.ring.context import RingContext
from inference.ring.errors import BadStep, LineBroken, RingError, RingIncomplete
from inference.ring.leased import LeasedStages
from inference.ring.relay_line import LeasedStage
from inference.ring.steps import Answer, Step, read_message, write_message
from relay.work import Failed, OnStepDone, StageStep
from tests.inference.ring.relayed import Loopback, leased, leased_stages
from tests.inference.stage_chain import SETTINGS, cut, play

TINY = ContextSettings(sequence_tokens=64, sequences=2, batch_tokens=8, threads=1, outputs=2)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    folder = tmp_path_factory.mktemp("three")
    model = synthetic.full122b(folder / "model.gguf", layers=12, shape=synthetic.SMALL)
    return model, cut(model, folder, 3)


class Desk:
    def __init__(self, three: tuple[Path, list[Path]], transport: Loopback) -> None:
        self.model, paths = three
        self.transport = transport
        self.stages = leased(self.model, paths)
        self.passed: list[tuple[int, int]] = []

    def directory(self) -> LeasedStages:
        found = leased_stages(self.model, self.transport, self.on_passed)
        found.set_stages(self.stages)
        return found

    def on_passed(
        self, stages: Sequence[LeasedStage], settings: ContextSettings, step: Step, answers: Sequence[Answer]
    ) -> None:
        self.passed.append((step.rows, len(answers)))


@pytest.fixture
def desk(three: tuple[Path, list[Path]]) -> Iterator[Desk]:
    with Loopback(three[1]) as transport:
        yield Desk(three, transport)


def step_of(rows: int = 3) -> Step:
    numbers = np.arange(rows, dtype=np.int32)
    wants = np.zeros(rows, np.int8)
    wants[-1] = 1
    return Step((), numbers, np.zeros(rows, np.int32), wants, tokens=numbers + 5)


def test_a_ring_through_the_relay_gives_the_bits_of_plain_llama(desk: Desk) -> None:
    with Model(desk.model) as whole, Context(whole, SETTINGS) as plain:
        expected = play(plain)
    directory = desk.directory()

    with RingContext(directory.open_line, SETTINGS, synthetic.DEMO_VOCABULARY) as ring:
        found = play(ring)

    np.testing.assert_array_equal(found, expected)
    assert {stages for _, stages in desk.passed} == {3}
    assert len(desk.passed) == ring.counts.steps


def test_a_stage_that_leaves_breaks_the_line_and_the_ring_reads_again_on_another(
    three: tuple[Path, list[Path]],
) -> None:
    model, paths = three
    with Loopback([*paths, paths[1]]) as transport:
        directory = leased_stages(model, transport)
        stages = leased(model, [*paths, paths[1]])
        directory.set_stages(stages)

        def leave(number: int) -> None:
            if number == 1 and transport.asked.count(1) == 6:
                transport.gone.add(1)
                directory.set_stages([stage for stage in stages if stage.session != 1])

        transport.on_asked = leave
        with RingContext(directory.open_line, SETTINGS, synthetic.DEMO_VOCABULARY) as ring:
            found = play(ring)

        assert np.isfinite(found).all()
        assert (ring.counts.losses, ring.counts.replayed_tokens > 0) == (1, True)
        assert transport.asked.count(1) == 7  # the sixth, which failed, and the last word of the ring that broke
        assert transport.asked.count(3) > 5


def test_it_says_which_layers_nobody_holds(desk: Desk) -> None:
    directory = desk.directory()
    directory.set_stages(desk.stages[:1])

    assert not directory.has_ring()
    with pytest.raises(RingIncomplete, match="layer 4"):
        directory.open_line(TINY, time.monotonic())
    directory.set_stages(desk.stages)
    assert directory.has_ring()


def test_who_wants_a_ring_waits_for_the_missing_stage(desk: Desk) -> None:
    directory = desk.directory()
    directory.stop()
    directory.set_stages([])

    with pytest.raises(RingIncomplete):
        directory.open_line(TINY, time.monotonic() + 60)


def test_rings_are_spread_over_replicas_and_closed_ones_do_not_count(three: tuple[Path, list[Path]]) -> None:
    model, paths = three
    with Loopback([*paths, paths[0]]) as transport:
        directory = leased_stages(model, transport)
        directory.set_stages(leased(model, [*paths, paths[0]]))

        lines = [directory.open_line(TINY, 0.0) for _ in range(2)]
        firsts = {line.stages[0].session for line in lines}
        for line in lines:
            line.close()
            line.close()

        assert firsts == {0, 3}
        again = directory.open_line(TINY, 0.0)
        assert again.stages[0].session == 0
        again.close()


def test_a_stage_that_holds_something_else_than_its_claim_opens_no_ring(desk: Desk) -> None:
    desk.stages[0], desk.stages[1] = (
        LeasedStage(**{**vars(desk.stages[0]), "session": 1}),
        LeasedStage(**{**vars(desk.stages[1]), "session": 0}),
    )

    with pytest.raises(BadStep, match="something else"):
        desk.directory().open_line(TINY, 0.0)


@pytest.mark.parametrize(
    ("number", "lie", "said"),
    [
        (0, lambda answer: Answer(0, answer.content, answer.values[:, :-1], answer.seconds), "values"),
        (0, lambda answer: Answer(0), "values"),
        (1, lambda answer: Answer(0, answer.content, answer.values * np.float32(np.nan), answer.seconds), "no numbers"),
        (2, lambda answer: Answer(0, answer.content, np.repeat(answer.values, 2, axis=0), answer.seconds), "values"),
    ],
)
def test_an_answer_of_another_shape_or_without_numbers_breaks_the_line(
    desk: Desk, number: int, lie: object, said: str
) -> None:
    line = desk.directory().open_line(TINY, 0.0)

    def lying(data: bytes) -> bytes:
        message = read_message(data)
        assert isinstance(message.body, Answer)
        return write_message(message.ring, message.number, lie(message.body))  # type: ignore[operator]

    desk.transport.lies[number] = lying
    with pytest.raises(BadStep, match=said):
        line.exchange(step_of())
    assert desk.passed == []


def test_a_stage_that_is_gone_breaks_the_line(desk: Desk) -> None:
    line = desk.directory().open_line(TINY, 0.0)
    desk.transport.gone.add(2)

    with pytest.raises(LineBroken, match="session_left"):
        line.exchange(step_of())


def test_a_stage_whose_window_is_full_is_asked_again(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    line = desk.directory().open_line(TINY, 0.0)
    submit, refusals = desk.transport.submit_step, iter([True, True])

    def hesitant(step: StageStep, on_done: OnStepDone) -> int:
        if next(refusals, False):
            on_done(Failed("no_credit", "as the test wished"))
            return 0
        return submit(step, on_done)

    monkeypatch.setattr(desk.transport, "submit_step", hesitant)

    assert line.exchange(step_of()).code == 0


def test_a_step_that_a_stage_refuses_ends_there(desk: Desk) -> None:
    line = desk.directory().open_line(TINY, 0.0)
    asked = len(desk.transport.asked)

    with pytest.raises(RingError, match="rows"):
        line.exchange(step_of(9))

    assert desk.transport.asked[asked:] == [0]
