from pathlib import Path

import gguf
import pytest

from inference.errors import MissingPart, NotGGUF
from inference.gguf_split import read_parts
from inference.synthetic import split
from tests.model_files import tiny_moe


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    return split(tiny_moe(tmp_path / "model.gguf"), tmp_path, 3)


def rewrite(path: Path, number: int, count: int) -> None:
    """Replace a part by an empty one that says `number` of `count`."""
    writer = gguf.GGUFWriter(str(path), "qwen3moe")
    writer.add_key_value("split.no", number, gguf.GGUFValueType.UINT16)
    writer.add_key_value("split.count", count, gguf.GGUFValueType.UINT16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()


def test_any_part_leads_to_all_of_them(parts: list[Path]) -> None:
    for part in parts:
        found = read_parts(part)

        assert [file for file, _ in found] == parts
        assert sum(len(header.tensors) for _, header in found) == 10


def test_a_single_file_is_a_set_of_one(tmp_path: Path) -> None:
    path = tiny_moe(tmp_path / "model.gguf")

    assert [file for file, _ in read_parts(path)] == [path]


def test_it_names_every_missing_part(parts: list[Path]) -> None:
    parts[0].unlink()
    parts[2].unlink()

    with pytest.raises(MissingPart, match=r"2 of 3 .* model-00001-of-00003.gguf, model-00003-of-00003.gguf"):
        read_parts(parts[1])


def test_it_says_so_when_a_part_was_renamed(parts: list[Path]) -> None:
    renamed = parts[0].rename(parts[0].with_name("first.gguf"))

    with pytest.raises(MissingPart, match="original names"):
        read_parts(renamed)


def test_it_refuses_a_part_of_another_set(parts: list[Path]) -> None:
    rewrite(parts[1], number=2, count=3)

    with pytest.raises(NotGGUF, match="part 2 of 3; the set is mixed up"):
        read_parts(parts[0])


def test_it_refuses_a_set_that_lost_tensors(parts: list[Path]) -> None:
    rewrite(parts[1], number=1, count=3)

    with pytest.raises(NotGGUF, match="hold 7 tensors where the first says 10"):
        read_parts(parts[0])


def test_it_refuses_a_tensor_in_two_parts(tmp_path: Path, parts: list[Path]) -> None:
    other = split(tiny_moe(tmp_path / "other.gguf", omit=["blk.2.ffn_down_exps.weight"]), tmp_path, 3)
    other[2].replace(parts[2])

    with pytest.raises(NotGGUF, match="more than one part"):
        read_parts(parts[0])
