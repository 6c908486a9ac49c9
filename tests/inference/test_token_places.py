"""Where tokens were computed, from the engine through the expert backend and dispatcher: every row of every token."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from inference.backend import ExpertCall, SwarmBackend
from inference.dispatch import Dispatcher, DispatchPolicy
from inference.engine import Engine
from inference.generation import GenerationRequest, TokenEvent
from inference.replica_table import ReplicaTable
from inference.work_report import RowPlace
from tests.inference.loopback import Loopback, LoopbackWorker
from tests.inference.models import DEMO_MODEL
from tests.inference.test_engine import GREEDY, PROMPT, Listener

LAYERS, USED = 8, 4
ASKING = replace(GREEDY, places=True)


@contextmanager
def swarm(folder: Path) -> Iterator[tuple[Engine, Dispatcher]]:
    """One worker holds the first half of every layer's experts; the first expert of all is hot."""
    worker = LoopbackWorker(DEMO_MODEL, folder, 1, [(layer, 0, 16) for layer in range(LAYERS)])
    transport = Loopback([worker])
    dispatcher = Dispatcher(
        transport, layers=LAYERS, experts_per_layer=32, policy=DispatchPolicy(deadline_seconds=60.0)
    )
    dispatcher.set_replicas(ReplicaTable(worker.replicas, experts_per_layer=32))
    hot = np.zeros((LAYERS, 32), bool)
    hot[:, :8] = True
    dispatcher.set_hot(hot)
    backend = SwarmBackend.install(dispatcher)
    engine = Engine(
        DEMO_MODEL, sequences=4, context_tokens=256, threads=1, lane_context=backend.lane,
        row_places=dispatcher.row_places,
    )  # fmt: skip
    engine.start()
    try:
        yield engine, dispatcher
    finally:
        engine.stop()
        backend.handler = ExpertCall.compute_all
        transport.close()


def answered(engine: Engine, *requests: GenerationRequest) -> list[list[TokenEvent]]:
    listeners = [Listener() for _ in requests]
    for request, listener in zip(requests, listeners, strict=True):
        engine.submit(request, listener)
    for listener in listeners:
        listener.wait()
    return [listener.events for listener in listeners]


def test_every_token_after_the_first_says_where_each_of_its_rows_was_computed(tmp_path: Path) -> None:
    with swarm(tmp_path) as (engine, _):
        asking, other, silent = answered(
            engine,
            GenerationRequest("a", PROMPT, ASKING),
            GenerationRequest("b", tuple(reversed(PROMPT)), ASKING),
            GenerationRequest("c", PROMPT, GREEDY),
        )

    for events in (asking, other):
        places = [event.places for event in events[1:]]
        assert events[0].places is None  # it comes with the prompt
        assert all(where is not None and sum(where) == LAYERS * USED for where in places)
        assert all(sum(kind) > 0 for kind in zip(*[where for where in places if where], strict=True))
    assert [event.places for event in silent] == [None] * len(silent)


def test_the_sums_are_those_of_the_dispatchers_report(tmp_path: Path) -> None:
    with swarm(tmp_path) as (engine, dispatcher):
        answered(engine, GenerationRequest("warm", PROMPT, replace(GREEDY, max_tokens=1)))
        before = dispatcher.take_report().places
        (events,) = answered(engine, GenerationRequest("a", PROMPT, ASKING))
        report = dispatcher.take_report().places

    remote, hot, other = np.sum([event.places for event in events if event.places], axis=0)
    decoded = {place: rows - before[place] for place, rows in report.items()}
    assert remote == decoded[RowPlace.REMOTE]
    assert hot == decoded[RowPlace.HOT]
    assert other == sum(decoded.values()) - remote - hot
