import os
import random
import struct
from pathlib import Path

import gguf
import pytest

from inference.errors import FileUnreadable, GGUFError, NotGGUF, Truncated, UnknownType
from inference.gguf_header import (
    GGML_TYPES,
    Header,
    LongArray,
    encode_header,
    read_header,
    row_bytes,
    type_name,
    type_number,
)
from tests.model_files import DEMO_MODEL, Pair, gguf_bytes, number_pair, text, text_pair

ALL_SCALARS: list[Pair] = [
    ("u8", 0, b"\xff"),
    ("i8", 1, b"\xff"),
    ("u16", 2, struct.pack("<H", 65535)),
    ("i16", 3, struct.pack("<h", -2)),
    ("u32", 4, struct.pack("<I", 1 << 31)),
    ("i32", 5, struct.pack("<i", -3)),
    ("f32", 6, struct.pack("<f", 0.5)),
    ("bool", 7, b"\x01"),
    ("u64", 10, struct.pack("<Q", 1 << 63)),
    ("i64", 11, struct.pack("<q", -4)),
    ("f64", 12, struct.pack("<d", 0.25)),
]
SAMPLE = gguf_bytes(
    [
        text_pair("general.architecture", "qwen3moe"),
        *ALL_SCALARS,
        ("words", 9, struct.pack("<IQ", 8, 2) + text("a") + text("bc")),
        ("numbers", 9, struct.pack("<IQ3I", 4, 3, 7, 8, 9)),
    ],
    [("a.weight", (4, 2), 0, 0), ("b.weight", (32,), 8, 32)],
    data=bytes(32 + 34),
)


def read_bytes(tmp_path: Path, data: bytes) -> Header:
    path = tmp_path / "file.gguf"
    path.write_bytes(data)
    return read_header(path)


def test_it_reads_every_value_type(tmp_path: Path) -> None:
    header = read_bytes(tmp_path, SAMPLE)

    expected = [255, -1, 65535, -2, 1 << 31, -3, 0.5, True, 1 << 63, -4, 0.25]
    assert [header.metadata[key] for key, _, _ in ALL_SCALARS] == expected
    assert header.metadata["words"] == LongArray(8, 2)
    assert header.metadata["numbers"] == (7, 8, 9)
    assert [(t.shape, t.ggml_type, t.size) for t in header.tensors.values()] == [((4, 2), 0, 32), ((32,), 8, 34)]


def test_it_agrees_with_the_gguf_package_on_the_demo_model() -> None:
    oracle = gguf.GGUFReader(DEMO_MODEL)

    header = read_header(DEMO_MODEL)

    assert list(header.metadata) == [key for key in oracle.fields if not key.startswith("GGUF.")]
    scalars = {key: value for key, value in header.metadata.items() if not isinstance(value, tuple | LongArray)}
    assert scalars == {key: oracle.fields[key].contents() for key in scalars}
    assert [(t.name, t.shape, t.ggml_type, t.offset, t.size) for t in header.tensors.values()] == [
        (t.name, tuple(t.shape.tolist()), int(t.tensor_type), t.data_offset, t.n_bytes) for t in oracle.tensors
    ]


def test_it_knows_every_type_of_the_gguf_package() -> None:
    assert set(GGML_TYPES) == {int(kind) for kind in gguf.GGML_QUANT_SIZES}
    assert type_name(12) == "Q4_K"
    assert type_name(99) == "type 99"
    assert type_number("MXFP4") == 39
    assert row_bytes(12, 512) == 288


def test_every_truncation_of_a_header_is_an_error_of_ours(tmp_path: Path) -> None:
    for length in range(len(SAMPLE)):
        with pytest.raises(Truncated):
            read_bytes(tmp_path, SAMPLE[:length])


def test_a_file_whose_last_padding_is_missing_is_complete(tmp_path: Path) -> None:
    assert len(read_bytes(tmp_path, SAMPLE).tensors) == 2


def test_a_header_longer_than_the_first_read_is_read_on(tmp_path: Path) -> None:
    words = b"".join(text(f"word number {number}") for number in range(200_000))
    data = gguf_bytes([("words", 9, struct.pack("<IQ", 8, 200_000) + words), number_pair("last", 5)])

    header = read_bytes(tmp_path, data)

    assert len(data) > 4 << 20
    assert header.metadata == {"words": LongArray(8, 200_000), "last": 5}


def test_a_long_array_of_numbers_is_walked_and_not_kept(tmp_path: Path) -> None:
    data = gguf_bytes([("numbers", 9, struct.pack("<IQ", 0, 5000) + bytes(5000)), number_pair("last", 5)])

    assert read_bytes(tmp_path, data).metadata == {"numbers": LongArray(0, 5000), "last": 5}


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (b"", Truncated, "ends inside its header"),
        (b"PK\3\4rubbish", NotGGUF, "not a GGUF"),
        (gguf_bytes(version=1), NotGGUF, "version 1"),
        (gguf_bytes(version=4), NotGGUF, "version 4"),
        (gguf_bytes(version=3 << 24), NotGGUF, "big-endian"),
        (gguf_bytes(counts=(1 << 63, 0)), NotGGUF, "tensors"),
        (gguf_bytes(counts=(0, 1 << 63)), NotGGUF, "keys"),
        (gguf_bytes(counts=(1000, 0)), Truncated, "header"),
        (gguf_bytes([number_pair("a", 1), number_pair("a", 1)]), NotGGUF, "twice"),
        (gguf_bytes([("a", 13, b"")]), NotGGUF, "value type 13"),
        (gguf_bytes([("a", 9, struct.pack("<IQ", 9, 1))]), NotGGUF, "elements of type 9"),
        (gguf_bytes([("a", 9, struct.pack("<IQ", 0, 1 << 62))]), NotGGUF, "elements"),
        (gguf_bytes([("a", 9, struct.pack("<IQ", 8, 1000))]), Truncated, "header"),
        (gguf_bytes([("a", 9, struct.pack("<IQQ", 8, 1, 1 << 62))]), NotGGUF, "string of"),
        (gguf_bytes([("a", 8, struct.pack("<Q", 1 << 62))]), NotGGUF, "bytes"),
        (gguf_bytes([("a", 8, text(b"\xff\xfe"))]), NotGGUF, "UTF-8"),
        (gguf_bytes([number_pair("general.alignment", 48)]), NotGGUF, "alignment"),
        (gguf_bytes([text_pair("general.alignment", "x")]), NotGGUF, "alignment"),
        (gguf_bytes(tensors=[("t", (1,), 0, 0), ("t", (1,), 0, 32)]), NotGGUF, "twice"),
        (gguf_bytes(tensors=[("t", (1, 1, 1, 1, 1), 0, 0)]), NotGGUF, "dimensions"),
        (gguf_bytes(tensors=[("t", (255,), 12, 0)]), NotGGUF, "blocks"),
        (gguf_bytes(tensors=[("t", (4,), 0, 8)]), NotGGUF, "offset 8"),
        (gguf_bytes(tensors=[("t", (1 << 62, 1 << 62), 0, 0)]), NotGGUF, "bytes"),
        (gguf_bytes(tensors=[("t", (4,), 99, 0)]), UnknownType, "t: ggml type 99"),
        (gguf_bytes(tensors=[("t", (4,), 0, 0)], data=bytes(15)), Truncated, "tensor t ends"),
    ],
)
def test_it_refuses_what_is_broken_and_says_why(
    tmp_path: Path, data: bytes, error: type[GGUFError], words: str
) -> None:
    with pytest.raises(error, match=words) as caught:
        read_bytes(tmp_path, data)

    assert "file.gguf" in str(caught.value)


def test_it_refuses_a_file_of_the_other_byte_order(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(str(tmp_path / "big.gguf"), "llama", endianess=gguf.GGUFEndian.BIG)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()

    with pytest.raises(NotGGUF, match="big-endian"):
        read_header(tmp_path / "big.gguf")


def test_random_and_mutated_headers_raise_only_errors_of_ours(tmp_path: Path) -> None:
    dice = random.Random(20240601)
    refused = 0
    for _ in range(1500):
        data = bytearray(SAMPLE if dice.random() < 0.9 else dice.randbytes(200))
        for _ in range(dice.randint(1, 6)):
            data[dice.randrange(len(data))] = dice.choice((0, 1, 0x7F, 0xFF, dice.randrange(256)))
        try:
            read_bytes(tmp_path, bytes(data))
        except GGUFError:
            refused += 1

    assert refused > 700


def test_it_does_not_wait_for_a_pipe_and_reads_no_folder(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    for path in (tmp_path / "pipe", tmp_path, tmp_path / "absent", Path("nul\0name")):
        with pytest.raises(FileUnreadable):
            read_header(path)


def test_what_it_writes_the_gguf_package_reads(tmp_path: Path) -> None:
    header = encode_header(
        {"general.architecture": "x", "general.alignment": 32, "own.key": 1 << 40},
        [("a", (4, 2, 3), 0, 96), ("b", (32, 1, 3), 8, 102), ("c", (1,), 0, 4)],
    )
    (tmp_path / "own.gguf").write_bytes(header + bytes(96 + 128 + 32))

    oracle = gguf.GGUFReader(tmp_path / "own.gguf")

    assert oracle.fields["own.key"].contents() == 1 << 40
    assert [(t.name, t.shape.tolist(), t.data_offset - len(header)) for t in oracle.tensors] == [
        ("a", [4, 2, 3], 0),
        ("b", [32, 1, 3], 96),
        ("c", [1], 224),
    ]
