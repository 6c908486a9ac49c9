from pathlib import Path

import numpy as np
import pytest

from inference.errors import BadTrace
from inference.llama import Batch, ContextSettings
from inference.trace import Clear, Copy, Decode, Move, Remove, TraceHeader, TraceReader, TraceWriter, logits_path

SETTINGS = ContextSettings(sequence_tokens=256, sequences=2, batch_tokens=8, threads=1, outputs=2)
HEADER = TraceHeader(Path("model.gguf"), "abc", vocabulary_size=3, settings=SETTINGS, lane=1)


def small_batch() -> Batch:
    batch = Batch(4)
    batch.size = 2
    batch.tokens[:2] = [5, 6]
    batch.positions[:2] = [7, 8]
    batch.sequences[:2] = [0, 1]
    batch.wants_logits[:2] = [0, 1]
    return batch


def write_sample(path: Path) -> None:
    with TraceWriter(path, HEADER) as trace:
        trace.decode(small_batch(), 0, np.array([[1.5, 2.5, 3.5]], np.float32))
        trace.decode(small_batch(), 1, None)
        trace.remove(1)
        trace.move(3, 1)
        trace.clear()


def test_it_reads_back_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "lane-1.jsonl"

    write_sample(path)

    reader = TraceReader(path)
    first, failed, *rest = reader.records()
    assert reader.header == HEADER
    assert isinstance(first, Decode)
    assert isinstance(failed, Decode)
    assert (first.tokens.tolist(), first.positions.tolist(), first.sequences.tolist()) == ([5, 6], [7, 8], [0, 1])
    assert (first.rows, failed.rows, failed.code) == (1, 0, 1)
    assert rest == [Remove(1), Move(3, 1), Clear()]
    assert reader.logits.tolist() == [[1.5, 2.5, 3.5]]


def test_it_ignores_a_line_that_the_writer_did_not_finish(tmp_path: Path) -> None:
    path = tmp_path / "lane.jsonl"
    write_sample(path)
    path.write_text(path.read_text()[:-3])

    assert len(list(TraceReader(path).records())) == 4


@pytest.mark.parametrize("line", ["{}", "[]", '{"decode":[1],"positions":[],"sequences":[],"logits":[],"code":0}', "x"])
def test_it_names_the_line_that_it_cannot_read(tmp_path: Path, line: str) -> None:
    path = tmp_path / "lane.jsonl"
    write_sample(path)
    path.write_text(path.read_text() + line + "\n")

    with pytest.raises(BadTrace, match="line 7"):
        list(TraceReader(path).records())


@pytest.mark.parametrize("text", ["", "{}\n", "text\n", '{"trace":99}\n'])
def test_it_refuses_a_file_that_is_no_trace(tmp_path: Path, text: str) -> None:
    path = tmp_path / "lane.jsonl"
    path.write_text(text)

    with pytest.raises(BadTrace, match="trace"):
        TraceReader(path)


def test_it_says_when_the_logits_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "lane.jsonl"
    write_sample(path)
    logits_path(path).unlink()

    with pytest.raises(BadTrace, match="beside"):
        _ = TraceReader(path).logits


def test_a_full_trace_ends_between_two_records_and_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "lane.jsonl"
    with TraceWriter(path, HEADER, most_bytes=700) as trace:
        for _ in range(50):
            trace.decode(small_batch(), 0, np.array([[1.5, 2.5, 3.5]], np.float32))

    reader = TraceReader(path)
    records = list(reader.records())

    assert 1 <= len(records) < 50
    assert len(reader.logits) >= len(records)
    assert path.stat().st_size + logits_path(path).stat().st_size <= 700


def test_a_copy_is_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "lane.jsonl"
    with TraceWriter(path, HEADER) as trace:
        trace.copy(2, 5)

    assert list(TraceReader(path).records()) == [Copy(2, 5)]
