import random

import pytest

from inference.hostile.confined import try_cases
from inference.hostile.frames import Frames, odd_message, samples
from relay.errors import RelayError
from relay.frames import FrameType, decode_frames
from relay.protocol import read_preamble


def test_the_valid_samples_are_of_every_kind() -> None:
    valid = samples()

    kinds = {frame.type for message in valid[:-4] for frame in decode_frames(message)}

    assert kinds == set(FrameType) - {FrameType.PONG}
    assert {read_preamble(message)[0].name for message in valid[-4:-1]} == {"BACKBONE", "STAGE", "WORKER"}


def test_most_odd_messages_decode_so_that_what_lies_behind_the_decoder_is_reached() -> None:
    valid, decoded = samples(), 0
    for seed in range(1000):
        try:
            decode_frames(odd_message(random.Random(seed), valid))
            decoded += 1
        except RelayError:
            continue

    assert decoded > 300


def test_no_odd_message_raises_anything_but_an_error_of_the_relay() -> None:
    found = try_cases(Frames(), 20240601, 0, 3000)

    assert found.faults == []
    assert found.cases == 3000
    assert found.refused > 2000


def test_a_reader_that_fails_is_a_fault_with_the_case_that_does_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Frames()
    monkeypatch.setattr(reader, "read", lambda case: dict[str, int]()["absent"])

    found = try_cases(reader, 7, 3, 5)

    assert [fault.partition(":")[0] for fault in found.faults] == ["Frames 7/3", "Frames 7/4"]
    assert "KeyError" in found.faults[0]
