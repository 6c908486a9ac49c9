"""The engine with its threads, on the demo model."""

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from inference.engine import STOPPED, Engine
from inference.errors import BadParameter, Draining, ModelNotLoaded, PromptTooLong, QueueFull
from inference.generation import GenerationRequest, TokenEvent
from inference.sampling import SamplingParameters
from inference.trace import TraceReader
from tests.inference.models import DEMO_MODEL, tokens_of

PROMPT = tokens_of("Once upon a time there was a")
GREEDY = SamplingParameters(temperature=0.0, max_tokens=16, ignore_eos=True)
ENDLESS = SamplingParameters(temperature=0.0, max_tokens=10_000, ignore_eos=True)


class Listener:
    """Collects events; `wait` until the answer has ended."""

    def __init__(self) -> None:
        self.events: list[TokenEvent] = []
        self._done = threading.Event()
        self._begun = threading.Event()

    def __call__(self, event: TokenEvent) -> None:
        self.events.append(event)
        self._begun.set()
        if event.finish is not None:
            self._done.set()

    def wait(self) -> TokenEvent:
        assert self._done.wait(30), "no end within 30 s"
        return self.events[-1]

    def wait_for_first(self) -> None:
        assert self._begun.wait(30), "no token within 30 s"

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events)


@contextmanager
def running(**settings: Any) -> Iterator[Engine]:
    engine = Engine(DEMO_MODEL, **{"sequences": 4, "context_tokens": 256, "threads": 1, **settings})
    engine.start()
    try:
        yield engine
    finally:
        engine.stop()


def submit(engine: Engine, name: str, sampling: SamplingParameters = GREEDY) -> Listener:
    listener = Listener()
    engine.submit(GenerationRequest(name, PROMPT, sampling), listener)
    return listener


def test_it_refuses_a_missing_model(tmp_path: Path) -> None:
    with pytest.raises(ModelNotLoaded, match="nothing here"):
        Engine(tmp_path / "nothing here")


@pytest.mark.parametrize("lanes", [1, 2])
def test_it_serves_more_requests_than_it_has_sequences(lanes: int) -> None:
    with running(lanes=lanes) as engine:
        listeners = [submit(engine, f"request {number}") for number in range(10)]
        for listener in listeners:
            listener.wait()
        stats = engine.stats()

    assert all([event.index for event in listener.events] == list(range(16)) for listener in listeners)
    assert all(listener.events[-1].finish == "length" for listener in listeners)
    assert stats.tokens_generated == 160
    assert (stats.sequences_active, stats.sequences_waiting) == (0, 0)
    assert stats.tokens_per_second > 0


def test_requests_spread_over_the_lanes() -> None:
    with running(lanes=2) as engine:
        for name in ("alice", "bob", "carol"):
            submit(engine, name, ENDLESS)

        assert sorted(engine.stats().lane_sequences) == [1, 2]


def test_the_answer_is_the_text_of_its_tokens() -> None:
    with running() as engine:
        alice = submit(engine, "alice")
        alice.wait()

        assert alice.text == engine.detokenize([event.token for event in alice.events])


def test_it_cancels_a_running_and_a_waiting_request() -> None:
    with running(sequences=1) as engine:
        alice, bob, carol = (submit(engine, name, ENDLESS) for name in ("alice", "bob", "carol"))
        alice.wait_for_first()

        assert engine.cancel("carol")
        assert carol.wait().finish == "cancelled"
        assert engine.cancel("alice")
        assert alice.wait().finish == "cancelled"
        bob.wait_for_first()
        assert not engine.cancel("alice")


def test_it_refuses_what_it_cannot_serve() -> None:
    with running() as engine:
        with pytest.raises(PromptTooLong, match="300 tokens, at most 255"):
            engine.submit(GenerationRequest("mallory", PROMPT[:1] * 300), Listener())
        with pytest.raises(BadParameter, match="temperature"):
            submit(engine, "mallory", SamplingParameters(temperature=-1))
        submit(engine, "alice", ENDLESS)
        with pytest.raises(BadParameter, match="alice is running"):
            submit(engine, "alice")


def test_it_refuses_more_than_its_queue_holds() -> None:
    with running(sequences=1, queue_length=2) as engine:
        submit(engine, "alice", ENDLESS)
        submit(engine, "bob")
        submit(engine, "carol")

        with pytest.raises(QueueFull, match="2 requests wait"):
            submit(engine, "mallory")


def test_it_takes_nothing_before_it_starts() -> None:
    engine = Engine(DEMO_MODEL, threads=1)

    with pytest.raises(Draining):
        submit(engine, "alice")
    engine.stop()


def test_stopping_lets_the_running_requests_end() -> None:
    with running() as engine:
        alice = submit(engine, "alice")

        engine.stop(drain_seconds=30)

        assert alice.wait().finish == "length"
        with pytest.raises(Draining):
            submit(engine, "bob")


def test_stopping_without_patience_says_that_nobody_cancelled() -> None:
    with running(sequences=1) as engine:
        alice, bob = submit(engine, "alice", ENDLESS), submit(engine, "bob", ENDLESS)
        alice.wait_for_first()

        engine.stop()

        assert (alice.wait().finish, alice.wait().error) == ("error", STOPPED)
        assert (bob.wait().finish, bob.wait().error) == ("error", STOPPED)


def test_an_idle_engine_uses_no_processor_time() -> None:
    with running(lanes=2) as engine:
        submit(engine, "alice").wait()
        time.sleep(0.1)
        before = time.process_time()

        time.sleep(0.5)

        assert time.process_time() - before < 0.1


def test_a_lane_is_created_inside_its_lane_context() -> None:
    entered: list[tuple[int, int]] = []

    @contextmanager
    def note(lane: int, threads: int) -> Iterator[None]:
        entered.append((lane, threads))
        yield

    def lane_context(lane: int, threads: int) -> AbstractContextManager[None]:
        return note(lane, threads)

    with running(lanes=2, threads=2, lane_context=lane_context):
        assert entered == [(0, 1), (1, 1)]


def test_it_writes_a_trace_for_each_lane(tmp_path: Path) -> None:
    with running(lanes=2, trace_dir=tmp_path) as engine:
        for listener in [submit(engine, f"request {number}") for number in range(4)]:
            listener.wait()

    for number in range(2):
        reader = TraceReader(tmp_path / f"lane-{number}.jsonl")
        assert (reader.header.lane, reader.header.model) == (number, DEMO_MODEL)
        assert len(reader.logits) == 32
        assert len(reader.header.fingerprint) == 32


def test_it_knows_text_and_metadata() -> None:
    engine = Engine(DEMO_MODEL, threads=1)

    assert engine.detokenize(engine.tokenize("In the beginning")) == "In the beginning"
    assert "<|im_start|>" in (engine.chat_template() or "")
    assert engine.metadata["general.architecture"] == "qwen35moe"
    assert (engine.vocabulary_size, engine.context_tokens) == (4096, 1024)
    engine.stop()


def test_a_request_of_higher_priority_is_served_before_those_that_wait() -> None:
    ended: list[str] = []
    with running(sequences=1) as engine:
        submit(engine, "running")
        waiting = []
        for name, priority in (("first", 0), ("second", 0), ("urgent", 3)):
            listener = Listener()
            request = GenerationRequest(name, PROMPT, GREEDY, priority=priority)
            engine.submit(request, partial(tell, ended, name, listener))
            waiting.append(listener)
        for listener in waiting:
            listener.wait()

    assert ended == ["urgent", "first", "second"]


def tell(ended: list[str], name: str, heard: Listener, event: TokenEvent) -> None:
    if event.finish is not None:
        ended.append(name)
    heard(event)


def test_a_lane_that_kept_the_beginning_of_a_prompt_gets_it() -> None:
    system = PROMPT * 6
    with running(lanes=2, sequences=4, kept_sequences=2) as engine:
        first = submit_tokens(engine, "first", system)
        first.wait()
        answer = tuple(event.token for event in first.events)
        second = submit_tokens(engine, "second", system + answer + PROMPT)
        second.wait()

        stats = engine.stats()

    assert stats.reused_tokens == len(system) + len(answer) - 1
    assert stats.sequences_limit == 4


def submit_tokens(engine: Engine, name: str, prompt: tuple[int, ...]) -> Listener:
    listener = Listener()
    engine.submit(GenerationRequest(name, prompt, GREEDY), listener)
    return listener
