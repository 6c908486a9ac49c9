"""docs/vectors: the files are those of the codec, and a reader that knows only the files can replay them."""

import json
from typing import Any

import pytest

from relay import vectors
from relay.errors import FrameError
from relay.frames import HEADER_BYTES, Frame, FrameType, decode_frames, encode_frame
from tests.e2e.processes import ROOT

FOLDER = ROOT / "docs" / "vectors"


def stored(name: str) -> Any:
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["frames.json", "refused.json", "sessions.json"])
def test_the_files_are_what_the_command_writes(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == vectors.text_of(vectors.files()[name]), (
        "run: python -m relay.vectors docs/vectors"
    )


def test_every_frame_reads_and_writes_as_the_file_says() -> None:
    for entry in stored("frames.json")["frames"]:
        body = vectors.body_of(entry["body"])
        message = bytes.fromhex(entry["header"]) + body

        (frame,) = decode_frames(message)

        assert {name: int(value) for name, value in zip(Frame._fields[:11], frame[:11], strict=True)} == entry["fields"]
        assert bytes(frame.body) == body, entry["name"]
        assert encode_frame(frame) == message
        assert frame.type.name == entry["kind"]


def test_the_kinds_and_the_sizes_of_the_protocol_are_all_there() -> None:
    frames = stored("frames.json")["frames"]

    assert {entry["kind"] for entry in frames} == {kind.name for kind in FrameType}
    assert {len(vectors.body_of(entry["body"])) for entry in frames} >= {0, 125, 126, 65_535, 65_536, 524_287, 524_288}


def test_chunks_join_to_their_body() -> None:
    for entry in stored("frames.json")["chunked"]:
        body = vectors.body_of(entry["body"])
        position = 0
        for chunk in entry["chunks"]:
            (frame,) = decode_frames(bytes.fromhex(chunk["header"]) + body[position : position + chunk["size"]])
            assert frame.flags == (position + chunk["size"] < len(body))
            position += chunk["size"]
        assert position == len(body), entry["name"]


def test_several_frames_share_a_message() -> None:
    for entry in stored("frames.json")["messages"]:
        assert [frame.type.name for frame in decode_frames(bytes.fromhex(entry["hex"]))] == entry["kinds"]


def test_what_must_be_refused_is_refused_with_its_code() -> None:
    entries = stored("refused.json")["messages"]

    assert len(entries) > HEADER_BYTES + 240
    for entry in entries:
        with pytest.raises(FrameError) as caught:
            decode_frames(bytes.fromhex(entry["hex"]))
        assert caught.value.code == entry["code"], entry["name"]
