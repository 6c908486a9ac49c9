"""Messages of a ring: both directions, every truncation, and random bytes that raise nothing but BadStep."""

import random

import numpy as np
import pytest

from inference.llama import ContextSettings
from inference.ring.errors import BadStep
from inference.ring.steps import (
    MAX_ROWS,
    Answer,
    Attach,
    Body,
    Close,
    Content,
    Describe,
    Failed,
    Open,
    Opened,
    Operation,
    OperationKind,
    StageDescription,
    Step,
    read_message,
    write_message,
)

RING = bytes(range(16))
SETTINGS = ContextSettings(sequence_tokens=256, sequences=4, batch_tokens=64, threads=1, outputs=4)
STAGE = StageDescription("ab" * 16, 4, 8, 12, 256, 4096, has_experts=False)
INTS = np.array([7, 8, 9], np.int32)
FLAGS = np.array([0, 0, 1], np.int8)
VALUES = np.arange(6, dtype=np.float32).reshape(3, 2)
OPERATIONS = (Operation(OperationKind.MOVE, 3, 1), Operation(OperationKind.CLEAR))
SAMPLES: dict[str, Body] = {
    "open": Open(SETTINGS, ("10.0.0.1:9000", "stage.example:1")),
    "opened": Opened((STAGE, STAGE)),
    "describe": Describe(),
    "attach": Attach(),
    "step with tokens": Step(OPERATIONS, INTS, INTS, FLAGS, tokens=INTS),
    "step with hidden states": Step((), INTS, INTS, FLAGS, hidden=VALUES, seconds=(0.5,)),
    "answer with logits": Answer(0, Content.LOGITS, VALUES, (0.5, 0.25)),
    "answer without rows": Answer(-3),
    "failed": Failed(2, "bad_step", "keine Zeilen für dich"),
    "close": Close(),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_message_comes_back_as_it_was_sent(name: str) -> None:
    data = write_message(RING, 41, SAMPLES[name])

    message = read_message(data)

    assert (message.ring, message.number) == (RING, 41)
    assert write_message(message.ring, message.number, message.body) == data
    assert type(message.body) is type(SAMPLES[name])
    assert repr(message.body) == repr(SAMPLES[name])


def test_a_step_has_these_bytes() -> None:
    step = Step((Operation(OperationKind.REMOVE, 2),), INTS[:1], INTS[:1], FLAGS[2:], tokens=INTS[1:2])

    data = write_message(RING, 5, step)

    assert data.hex(" ", -4) == (
        "05010000 05000000 00010203 04050607 08090a0b 0c0d0e0f "
        "01000000 01000000 01000000 00000000 "
        "01020000 00000000 00070000 00070000 00010800 0000"
    )


def test_the_next_stage_gets_the_hidden_states_and_the_times() -> None:
    step = Step(OPERATIONS, INTS, INTS, FLAGS, tokens=INTS, seconds=(0.5,))

    onward = step.onward(Answer(0, Content.HIDDEN, VALUES, (0.25,)))

    assert onward.tokens is None
    assert onward.operations == OPERATIONS
    assert onward.seconds == (0.5, 0.25)
    np.testing.assert_array_equal(onward.hidden, VALUES)


@pytest.mark.parametrize("name", SAMPLES)
def test_it_refuses_every_truncation_and_a_byte_too_many(name: str) -> None:
    data = write_message(RING, 1, SAMPLES[name])

    for size in range(len(data)):
        with pytest.raises(BadStep):
            read_message(data[:size])
    with pytest.raises(BadStep):
        read_message(data + b"\0")


@pytest.mark.parametrize("kind", [number for number in range(256) if not 1 <= number <= 8])
def test_it_refuses_an_unknown_kind(kind: int) -> None:
    data = bytearray(write_message(RING, 1, Describe()))
    data[0] = kind

    with pytest.raises(BadStep, match="kind"):
        read_message(bytes(data))


def test_it_refuses_sizes_before_it_makes_arrays() -> None:
    data = bytearray(write_message(RING, 1, SAMPLES["step with hidden states"]))
    data[32:36] = (MAX_ROWS + 1).to_bytes(4, "little")

    with pytest.raises(BadStep, match="rows"):
        read_message(bytes(data))


def test_random_and_mutated_bytes_raise_nothing_else() -> None:
    chance = random.Random(20261130)
    samples = [write_message(RING, 1, body) for body in SAMPLES.values()]
    understood = 0

    for _ in range(20_000):
        data = bytearray(chance.choice(samples))
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.choice((0, 1, 127, 128, 255, chance.randrange(256)))
        if chance.random() < 0.2:
            data = bytearray(chance.randbytes(chance.randrange(120)))
        try:
            read_message(bytes(data))
            understood += 1
        except BadStep:
            pass

    assert understood > 1_000  # a changed value is still a message
