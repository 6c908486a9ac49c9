"""A stage checks every step before llama.cpp sees it, and answers through the relay with bytes."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from inference.errors import InferenceError
from inference.llama import ContextSettings, Model
from inference.ring.errors import BadStep, StageFull, UnknownRing
from inference.ring.service import StageService
from inference.ring.steps import (
    Answer,
    Body,
    Close,
    Content,
    Describe,
    Failed,
    Open,
    Opened,
    Operation,
    OperationKind,
    Step,
    read_message,
    write_message,
)
from inference.stage.program import service_of
from tests.inference.models import DEMO_MODEL
from tests.inference.stage_chain import cut

RING, OTHER = bytes(16), bytes([1] * 16)
SETTINGS = ContextSettings(sequence_tokens=64, sequences=2, batch_tokens=8, threads=1, outputs=2)
ZEROS, ONES = np.zeros(1, np.int32), np.ones(1, np.int8)
NINE = np.zeros(9, np.int32)
TOKENS = Step((), ZEROS, ZEROS, ONES, tokens=np.array([100], np.int32))
HIDDEN = Step((), ZEROS, ZEROS, ONES, hidden=np.zeros((1, 256), np.float32))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Model]]:
    paths: list[Path] = cut(DEMO_MODEL, tmp_path_factory.mktemp("stages"), 2)
    opened = [Model(path) for path in paths]
    yield opened
    for model in opened:
        model.close()


@pytest.fixture
def first(models: list[Model]) -> Iterator[StageService]:
    service = service_of(models[0], rings=1)
    service.open(RING, SETTINGS)
    yield service
    service.stop()


@pytest.fixture
def last(models: list[Model]) -> Iterator[StageService]:
    service = service_of(models[1], rings=1)
    service.open(RING, SETTINGS)
    yield service
    service.stop()


def asked(service: StageService, body: Body, ring: bytes = RING) -> Body:
    return read_message(service.answer(write_message(ring, 3, body))).body


BAD_STEPS = {
    "a position behind the end": replace(TOKENS, positions=np.array([64], np.int32)),
    "a negative position": replace(TOKENS, positions=np.array([-1], np.int32)),
    "a sequence that the ring has not": replace(TOKENS, sequences=np.array([2], np.int32)),
    "a token outside of the vocabulary": replace(TOKENS, tokens=np.array([1 << 20], np.int32)),
    "too many rows": Step((), NINE, NINE, np.zeros(9, np.int8), tokens=NINE),
    "an operation on a foreign sequence": replace(TOKENS, operations=(Operation(OperationKind.COPY, 0, 2),)),
    "hidden states for the first stage": HIDDEN,
}


@pytest.mark.parametrize("name", BAD_STEPS)
def test_it_refuses(first: StageService, name: str) -> None:
    with pytest.raises(BadStep):
        first.compute(RING, BAD_STEPS[name])


def test_the_last_stage_refuses_hidden_states_of_another_width(last: StageService) -> None:
    with pytest.raises(BadStep, match="128"):
        last.compute(RING, replace(HIDDEN, hidden=np.zeros((1, 128), np.float32)))


def test_the_last_stage_refuses_tokens(last: StageService) -> None:
    with pytest.raises(BadStep, match="hidden"):
        last.compute(RING, TOKENS)


def test_it_serves_no_more_rings_than_it_may(first: StageService) -> None:
    with pytest.raises(StageFull):
        first.open(OTHER, SETTINGS)


def test_it_knows_no_ring_that_was_closed(first: StageService) -> None:
    first.close(RING)

    with pytest.raises(UnknownRing):
        first.compute(RING, TOKENS)


def test_two_stages_answer_steps_that_are_carried_from_one_to_the_other(
    first: StageService, last: StageService
) -> None:
    hidden = asked(first, TOKENS)

    assert isinstance(hidden, Answer)
    assert (hidden.code, hidden.content, hidden.values.shape) == (0, Content.HIDDEN, (1, 256))
    logits = asked(last, TOKENS.onward(hidden))
    assert isinstance(logits, Answer)
    assert (logits.code, logits.content, logits.values.shape) == (0, Content.LOGITS, (1, 4096))


def test_whatever_goes_wrong_is_answered_with_its_code(first: StageService) -> None:
    answers = [
        asked(first, TOKENS, OTHER),
        asked(first, HIDDEN),
        asked(first, Open(SETTINGS), OTHER),
        asked(first, Open(SETTINGS, ("host:1",)), OTHER),
        asked(first, Answer(0)),
    ]

    codes = [answer.code for answer in answers if isinstance(answer, Failed)]
    assert codes == ["unknown_ring", "bad_step", "stage_full", "bad_step", "bad_step"]


def test_it_describes_itself_and_closes(first: StageService) -> None:
    described = asked(first, Describe())

    assert described == Opened((first.description,))
    assert (first.description.first, first.description.last, first.description.layers) == (0, 4, 8)
    assert asked(first, Close()) == Opened()
    assert first.ring_count == 0


def test_random_messages_raise_nothing_but_documented_errors(first: StageService) -> None:
    random = np.random.default_rng(11)
    message = write_message(RING, 1, TOKENS)
    refused: set[str] = set()
    for _ in range(300):
        data = bytearray(message)
        for place in random.integers(0, len(data), 3):
            data[place] = random.integers(0, 256)
        try:
            first.answer(bytes(data))
        except InferenceError as error:
            refused.add(error.code)

    assert refused == {"bad_step"}
