"""`bench wire`: what travels is the formula and little else."""

from pathlib import Path

from inference.benchmarks.wire import COMPACT_GOAL_BYTES, ENCODINGS, EXACT_GOAL_BYTES, message_bytes, wire
from relay.frames import CHUNK_BYTES, Frame, FrameType


def test_framing_costs_less_than_three_per_cent_and_the_goals_are_met(tmp_path: Path) -> None:
    results = {
        result.case: result for result in wire(tmp_path, quick=True, threads=1, progress=lambda share, text: None)
    }

    assert len(results) == 2 * len(ENCODINGS)
    assert all(result.to_json()["met"] for result in results.values())
    assert all(0 < result.extra["overhead"] < 0.03 for result in results.values())
    assert 101_424 < results["exact/1"].value < EXACT_GOAL_BYTES
    assert 9_264 < results["compact/1"].value < COMPACT_GOAL_BYTES
    assert results["exact/8"].limit == 8 * 3120 + 8 * 3072 * 4
    assert results["compact/8"].limit == 8 * (3120 + 3072 * 2)


def test_messages_are_counted_with_both_headers_per_chunk() -> None:
    small = Frame(FrameType.RESULT, body=bytes(10))
    chunked = Frame(FrameType.RESULT, body=bytes(CHUNK_BYTES + 1))

    assert message_bytes(small, masked=False) == 2 + 32 + 10
    assert message_bytes(small, masked=True) == 2 + 4 + 32 + 10
    assert message_bytes(chunked, masked=False) == (10 + 32 + CHUNK_BYTES) + (2 + 32 + 1)
