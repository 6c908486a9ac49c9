"""A context over a ring of real stages: the bits of plain llama.cpp, also after a stage is lost."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inference import synthetic
from inference.decoding import RING_LOST
from inference.gguf_index import open_index
from inference.llama import Batch, Context, ContextSettings, Model
from inference.ring.context import RingContext
from inference.trace import TraceHeader, TraceWriter
from inference.verify.replay import replay
from tests.inference.models import DEMO_MODEL
from tests.inference.ring.lines import RunningStage, directory_of
from tests.inference.stage_chain import SETTINGS, cut, play


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    """A hybrid model of 12 layers and its three stages."""
    folder = tmp_path_factory.mktemp("three")
    model = synthetic.full122b(folder / "model.gguf", layers=12, shape=synthetic.SMALL)
    return model, cut(model, folder, 3)


def plain(model: Path) -> np.ndarray[Any, np.dtype[np.float32]]:
    with Model(model) as whole, Context(whole, SETTINGS) as context:
        return play(context)


@contextmanager
def ring_over(
    model: Path, stages: list[RunningStage], *, patience_seconds: float = 20.0, settings: ContextSettings = SETTINGS
) -> Iterator[RingContext]:
    directory = directory_of(model, [stage.address for stage in stages])
    with RingContext(
        directory.open_line, settings, synthetic.DEMO_VOCABULARY, patience_seconds=patience_seconds
    ) as context:
        yield context


def test_a_ring_of_one_stage_gives_the_bits_of_plain_llama(tmp_path: Path) -> None:
    with RunningStage(cut(DEMO_MODEL, tmp_path, 1)[0]) as stage, ring_over(DEMO_MODEL, [stage]) as ring:
        found = play(ring)

    np.testing.assert_array_equal(found, plain(DEMO_MODEL))


def test_a_ring_of_three_stages_gives_the_bits_of_plain_llama(three: tuple[Path, list[Path]]) -> None:
    model, paths = three
    with ExitStack() as stack:
        # In another order than that of their layers: who is first shows in what they hold.
        stages = [stack.enter_context(RunningStage(path)) for path in reversed(paths)]
        ring = stack.enter_context(ring_over(model, stages))

        found = play(ring)

        assert len(ring.counts.stage_seconds) == 3
        assert ring.counts.losses == 0
    np.testing.assert_array_equal(found, plain(model))


def test_a_lost_stage_is_replaced_and_its_sequences_are_read_again(
    three: tuple[Path, list[Path]], tmp_path: Path
) -> None:
    model, paths = three
    trace_path = tmp_path / "lane-0.jsonl"
    header = TraceHeader(model.resolve(), open_index(model).fingerprint, synthetic.DEMO_VOCABULARY, SETTINGS)
    with ExitStack() as stack:
        stages = [stack.enter_context(RunningStage(path)) for path in (*paths, paths[1])]
        trace = stack.enter_context(TraceWriter(trace_path, header))
        ring = stack.enter_context(ring_over(model, stages))
        ring.trace = trace

        script = Batch(8)
        for step in range(12):
            if step == 7:
                used = next(stage for stage in (stages[1], stages[3]) if stage.service.ring_count)
                used.stop()
            script.size = 3
            script.tokens[:3], script.positions[:3] = [100 + step, 200 + step, 300 + step], step
            script.sequences[:3], script.wants_logits[:3] = [0, 1, 2], 1
            assert ring.decode(script) == 0
            trace.decode(script, 0, ring.logits(3))

        assert ring.counts.losses == 1
        assert ring.counts.replayed_tokens == 3 * 7
    replayed = replay(trace_path)
    assert (replayed.positions, replayed.max_abs_diff, replayed.equal_bits) == (36, 0.0, True)


def test_parts_of_a_prompt_follow_each_other_and_what_is_lost_of_them_is_read_again(
    three: tuple[Path, list[Path]], tmp_path: Path
) -> None:
    model, paths = three
    trace_path = tmp_path / "lane-0.jsonl"
    header = TraceHeader(model.resolve(), open_index(model).fingerprint, synthetic.DEMO_VOCABULARY, SETTINGS)
    tokens = np.random.default_rng(5).integers(20, 4000, 96).astype(np.int32)
    with ExitStack() as stack:
        stages = [stack.enter_context(RunningStage(path)) for path in (*paths, paths[1])]
        trace = stack.enter_context(TraceWriter(trace_path, header))
        ring = stack.enter_context(ring_over(model, stages))
        ring.trace = trace
        part = Batch(8)
        for number, start in enumerate(range(0, len(tokens), 8)):
            if number == 6:  # while up to four parts are on their way
                next(stage for stage in (stages[1], stages[3]) if stage.service.ring_count).stop()
            part.size = 8
            part.tokens[:], part.positions[:] = tokens[start : start + 8], np.arange(start, start + 8)
            part.sequences[:] = 0
            part.wants_logits[:] = 0
            part.wants_logits[-1] = start + 8 == len(tokens)
            assert ring.decode(part) == 0
            trace.decode(part, 0, ring.logits(1) if part.wants_logits[-1] else None)

        assert ring.counts.losses == 1
        assert ring.counts.replayed_tokens >= 48
    replayed = replay(trace_path)
    assert (replayed.positions, replayed.max_abs_diff, replayed.equal_bits) == (1, 0.0, True)


def test_a_ring_that_nobody_completes_is_given_up_in_time(three: tuple[Path, list[Path]]) -> None:
    model, paths = three
    batch = Batch(1)
    batch.size = 1
    with (
        RunningStage(paths[0]) as first,
        RunningStage(paths[2]) as last,
        ring_over(model, [first, last], patience_seconds=0.5) as ring,
    ):
        code = ring.decode(batch)

    assert code == RING_LOST
