"""docs/protocol.md says what the code does: its tables are compared with the enums, its examples with the codec."""

import re
from collections.abc import Iterator

import pytest

from relay.client import MAX_BODY_BYTES
from relay.codes import RETRY_REJECTS, CloseCode, ErrorCode, LinkCode, RejectCode
from relay.credit import COUNTED, CREDIT_BYTES, CREDIT_LIMIT_BYTES, STAGE_CREDIT_BYTES, STAGE_CREDIT_LIMIT_BYTES
from relay.frames import CHUNK_BYTES, HEADER, MESSAGE_BYTES, PROTOCOL_VERSION, Frame, FrameType, Role, decode_frames
from relay.outbound import BACKBONE_LIMITS, WORKER_LIMITS
from relay.protocol import SHAPES, TRANSITIONS, Machine, Phase, State, receive
from tests.e2e.processes import ROOT

PAGE = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")


def tables() -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """(heading above, column names, rows) of every table."""
    for match in re.finditer(r"((?:^\|.*\|\n)+)", PAGE, re.M):
        heading = re.findall(r"^#+ (.*)$", PAGE[: match.start()], re.M)[-1]
        lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in match[1].splitlines()]
        yield heading, lines[0], lines[2:]


def table(*columns: str) -> list[list[str]]:
    (rows,) = [rows for _, names, rows in tables() if names == list(columns)]
    return rows


def test_the_roles_are_those_of_the_code() -> None:
    rows = table("byte", "role", "credential in HELLO")

    assert {name: int(byte, 16) for byte, name, _ in rows} == {role.name: role.value for role in Role}


def test_the_header_has_the_fields_of_the_code_at_their_places() -> None:
    rows = table("offset", "size", "field", "meaning")
    offsets = [int(offset) for offset, *_ in rows]
    sizes = [int(size) for _, size, *_ in rows]

    assert [name for _, _, name, _ in rows] == [*Frame._fields[:11], "size"]
    assert offsets == [sum(sizes[:index]) for index in range(len(sizes))]
    letters = {1: "B", 2: "H", 4: "I", 8: "Q"}
    assert "<" + "".join(letters[size] for size in sizes) == HEADER.format
    assert f"{CHUNK_BYTES:,}" in rows[-1][3]
    assert f"1 to {MESSAGE_BYTES:,} bytes" in PAGE


def test_every_frame_kind_is_listed_with_its_bounds() -> None:
    rows = table("byte", "frame", "body bytes", "chunks", "credit", "sent by")
    yes_no = {True: "yes", False: "no"}

    assert [row[:5] for row in rows] == [
        [
            f"0x{kind:02x}",
            kind.name,
            f"{SHAPES[kind].least} - {SHAPES[kind].most}",
            yes_no[SHAPES[kind].chunked],
            yes_no[kind in COUNTED],
        ]
        for kind in FrameType
    ]


@pytest.mark.parametrize("machine", Machine)
def test_the_state_machine_is_that_of_the_code(machine: Machine) -> None:
    ((_, columns, rows),) = [entry for entry in tables() if entry[0].lower() == machine.value]
    phases = [Phase(name) for name in columns[1:]]

    said = {
        (machine, phase, FrameType[row[0]]): Phase(cell)
        for row in rows
        for phase, cell in zip(phases, row[1:], strict=True)
        if cell != "-"
    }

    assert said == {key: after for key, (after, _) in TRANSITIONS.items() if key[0] is machine}


def test_the_codes_are_those_of_the_code() -> None:
    rejects = table("code", "again?", "meaning")
    errors = table("code", "made by", "meaning")
    closes = table("code", "name", "meaning")

    assert [code for code, *_ in rejects] == [code.value for code in RejectCode]
    assert {code for code, again, _ in rejects if again == "yes"} == RETRY_REJECTS
    assert [code for code, *_ in errors] == [code.value for code in ErrorCode]
    assert [code for code, _ in table("code", "made when")] == [code.value for code in LinkCode]
    assert {name: int(code) for code, name, _ in closes} == {code.name: code.value for code in CloseCode}


def test_the_numbers_in_the_text_are_those_of_the_code() -> None:
    for number in (CREDIT_BYTES, CREDIT_LIMIT_BYTES, STAGE_CREDIT_LIMIT_BYTES):
        assert f"({number:,})" in PAGE
    assert f"({STAGE_CREDIT_BYTES:,}: 512 rows of 8,192 float32" in PAGE
    assert f"bodies of {MAX_BODY_BYTES >> 20} MiB at most" in PAGE
    assert WORKER_LIMITS.control_bytes == 256 * 1024
    assert BACKBONE_LIMITS.control_bytes == 64 * 1024 * 1024
    assert f"version {PROTOCOL_VERSION}\n" in PAGE


MACHINES = {
    ("worker", "relay"): Machine.RELAY_WORKER,
    ("backbone", "relay"): Machine.RELAY_BACKBONE,
    ("relay", "worker"): Machine.CLIENT_WORKER,
    ("stage", "relay"): Machine.RELAY_STAGE,
    ("relay", "stage"): Machine.CLIENT_STAGE,
    ("relay", "backbone"): Machine.CLIENT_BACKBONE,
}


def examples() -> list[tuple[str, str, str, bytes]]:
    """(sender, receiver, kind, bytes) of every frame on the page."""
    found = []
    for block in re.findall(r"^```frame\n(.*?)^```", PAGE, re.M | re.S):
        for entry in block.strip().split("\n\n"):
            title, header, *body = entry.split("\n")
            match = re.fullmatch(r"(\w+) -> (\w+) (\w+)", title)
            assert match, title
            text = body[0] if body else ""
            data = text.encode() if text.startswith("{") else bytes.fromhex(text)
            found.append((match[1], match[2], match[3], bytes.fromhex(header) + data))
    return found


@pytest.mark.parametrize(("sender", "receiver", "kind", "data"), examples())
def test_every_example_is_one_frame_that_its_receiver_accepts(
    sender: str, receiver: str, kind: str, data: bytes
) -> None:
    if kind == "HELLO":
        assert data[0] == Role[sender.upper()]
        data = data[1:]

    (frame,) = decode_frames(data)

    assert frame.type.name == kind
    machine = MACHINES[sender, receiver]
    phase = Phase.OPENING if kind in {"HELLO", "WELCOME"} else Phase.READY
    receive(State(machine, phase), frame)


def test_there_is_an_example_of_every_kind() -> None:
    assert {kind for _, _, kind, _ in examples()} == {kind.name for kind in FrameType}
